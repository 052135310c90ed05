"""Save and load checkpoints of a trial: files (parts) with digests, and a manifest whose write commits the checkpoint.

A plain script saves and loads checkpoints of its own with `save`, `load` and `latest`.
"""

from kernel_backend.checkpoints.script import latest, load, save

__all__ = ["latest", "load", "save"]
