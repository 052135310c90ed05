"""Parse commands: programs that a job starts without changes, one process per slot."""
