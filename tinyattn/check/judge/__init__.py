"""How it is judged: one function's answers beside the right ones, and the questions that are asked of them."""
