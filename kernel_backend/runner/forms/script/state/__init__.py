"""Save the variables of a running program, and restore them in a new process that runs the program again."""
