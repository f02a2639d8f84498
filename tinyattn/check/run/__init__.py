"""How it is run: somebody's code in a process of its own."""
