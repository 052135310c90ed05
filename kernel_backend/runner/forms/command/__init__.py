"""Run a command: a process of it per rank, which the rank starts, watches and ends."""
