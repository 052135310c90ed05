"""Torch imported once, for all ranks that are forked from there: the process, and the launcher's way to it."""
