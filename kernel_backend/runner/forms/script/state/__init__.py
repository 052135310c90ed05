"""Save the variables of a program, and restore them in another process."""
