"""Manage Python environments: describe that of an interpreter, lock it, and build it from a lock file."""
