"""Run a command line that a user has submitted: each rank starts it as a child process, watches it and ends it."""
