"""Checkpoints of a trial: parts that are digested as they are written, and a manifest that is the commit.

A plain script saves and loads its own with `save`, `load` and `latest`.
"""

from kernel_backend.checkpoints.script import latest, load, save

__all__ = ["latest", "load", "save"]
