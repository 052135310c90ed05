"""Parse shell commands whose programs a job starts without changes, one process per slot."""
