"""Save the variables of a running program, and restore them in another process."""
