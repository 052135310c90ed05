"""Decide which requests get slots, and why the others wait: plain functions of a cluster state."""
