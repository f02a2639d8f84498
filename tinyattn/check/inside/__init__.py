"""Looks inside a learner's program, and points at the place where it goes wrong.

rewrite    the syntax tree with every expression passed through a hook, which sees all values and can replace them
steps      the values that the right program has on its way, and the sizes and numbers that it uses
repair     the search: put a right value in one place, let the learner's own code run on, see whether it is right
"""
