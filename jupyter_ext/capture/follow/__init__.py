"""Follows what executed statements do to the notebook's values, with things in their stead."""

from __future__ import annotations

from jupyter_ext.capture.follow.abstract_state import StatementEffect
from jupyter_ext.capture.follow.effects import Follower

__all__ = ["Follower", "StatementEffect"]
