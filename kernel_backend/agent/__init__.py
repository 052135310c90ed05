"""Run an agent: a process of a Unix user that does the service's work on the files and processes of that user."""
