"""Capture a notebook cell with all that it depends on as one readable module, or list what prevents that."""

from __future__ import annotations

from jupyter_ext.capture.cells import Cell
from jupyter_ext.capture.module import Capture, capture_cell, capture_file
from jupyter_ext.capture.problems import Problem

__all__ = ["Capture", "Cell", "Problem", "capture_cell", "capture_file"]
