"""The form of a program read off the program: what it takes, what it gives back, which conventions it follows."""
