"""Explain the schedule: why a request waits, when it may start, and whether it ever can."""
