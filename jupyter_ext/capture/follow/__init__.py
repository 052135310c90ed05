"""Interpret executed statements abstractly, to find the notebook values that each statement may change."""

from __future__ import annotations

from jupyter_ext.capture.follow.abstract_state import StatementEffect
from jupyter_ext.capture.follow.effects import Follower

__all__ = ["Follower", "StatementEffect"]
