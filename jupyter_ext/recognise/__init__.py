"""What a cell that is no definition is instead, and the same as a cell of functions."""

from __future__ import annotations

from jupyter_ext.recognise.found import Recognised, recognise

__all__ = ["Recognised", "recognise"]
