"""Decide which requests get slots, and explain why others wait: pure functions of the cluster state."""
