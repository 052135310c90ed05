"""Artifacts: files that a training keeps for people to look at, and the object by which a definition asks for it."""
