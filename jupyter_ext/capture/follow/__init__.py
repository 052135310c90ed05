"""Follows what executed statements do to the notebook's values, with things in their stead."""

from __future__ import annotations

from jupyter_ext.capture.follow.effects import Follower
from jupyter_ext.capture.follow.world import Outcome

__all__ = ["Follower", "Outcome"]
