"""What is known: the right programs, the mistakes as edits of them, the inputs that tell them apart."""
