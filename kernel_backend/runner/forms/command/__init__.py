"""Run a command: each rank starts one process of it, watches it and ends it."""
