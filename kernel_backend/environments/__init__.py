"""Manage Python environments: describe that of another interpreter, lock it, and build it from a lock."""
