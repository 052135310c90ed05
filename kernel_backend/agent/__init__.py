"""Run an agent: a process of a Unix user that does all of the service's work on the user's files and processes."""
