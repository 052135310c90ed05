"""Run as a Unix user, and perform all of the service's operations on that user's files and processes."""
