"""Manage environments: describe another interpreter, lock it, and build from a lock."""
