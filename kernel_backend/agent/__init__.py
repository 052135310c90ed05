"""Run as a Unix user and do all that the service does with that user's files and processes."""
