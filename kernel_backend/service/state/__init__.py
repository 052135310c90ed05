"""Maintain the scheduler's cluster state from the records in the store."""
