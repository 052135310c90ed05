"""Display experiments in a notebook: functions from records to MIME bundles, and a display that is updated."""

from __future__ import annotations

from jupyter_ext.views.card import bundle
from jupyter_ext.views.live import LiveView
from jupyter_ext.views.saved_state import MIME_TYPE, SAVED_POINTS
from jupyter_ext.views.tables import table

__all__ = ["MIME_TYPE", "SAVED_POINTS", "LiveView", "bundle", "table"]
