"""Maintain the scheduler's cluster state (nodes, gangs, queue, usage) from the records in the store."""
