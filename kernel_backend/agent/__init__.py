"""The process that is a Unix user: all that the service does with that user's files and processes, it does here."""
