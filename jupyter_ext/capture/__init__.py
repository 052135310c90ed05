"""From a cell to one readable module with everything that the cell needs, or a list of what stands in the way."""

from __future__ import annotations

from jupyter_ext.capture.cells import Cell
from jupyter_ext.capture.module import Capture, capture_cell, capture_file
from jupyter_ext.capture.problems import Problem

__all__ = ["Capture", "Cell", "Problem", "capture_cell", "capture_file"]
