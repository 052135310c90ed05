"""Recognise training code that is not a definition, and rewrite it as a cell of functions."""

from __future__ import annotations

from jupyter_ext.recognise.found import Recognised, recognise

__all__ = ["Recognised", "recognise"]
