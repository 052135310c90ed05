"""Capture a cell as one readable module with all its dependencies, or list the problems that prevent it."""

from __future__ import annotations

from jupyter_ext.capture.cells import Cell
from jupyter_ext.capture.module import Capture, capture_cell, capture_file
from jupyter_ext.capture.problems import Problem

__all__ = ["Capture", "Cell", "Problem", "capture_cell", "capture_file"]
