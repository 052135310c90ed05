"""Recognise training code that is not a valid training definition, and rewrite it as a cell of functions."""

from __future__ import annotations

from jupyter_ext.recognise.found import Recognised, recognise
from jupyter_ext.recognise.other_cells import in_other_cells

__all__ = ["Recognised", "in_other_cells", "recognise"]
