"""Save and load checkpoints of a plain script, which trains outside of Daylight and has no experiment."""

from __future__ import annotations

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.checkpoints.script import latest, load, save

__all__ = ["Manifest", "latest", "load", "save"]
