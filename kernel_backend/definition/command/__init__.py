"""Commands: programs that a job starts as they are, a process per slot."""
