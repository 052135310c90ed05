"""Save and load checkpoints of a plain script, without experiments, trials and ranks."""

from __future__ import annotations

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.checkpoints.script import latest, load, save

__all__ = ["Manifest", "latest", "load", "save"]
