"""Show the live view where JupyterLab's extension cannot run (VS Code, Colab): a widget that the kernel serves.

The module is imported when a widget is shown, because it imports anywidget. Messages on a widget's comm:

    to the kernel  {"type": "watch", "after": SEQ}           send every message after SEQ
                   {"type": "here", "after": SEQ}            the page is still open; every 20 s
                   {"id": N, "method", "path", "query"}      a request to the service: see comm_api.py
    to the pages   {"type": "messages", "after": SEQ, "messages": [...]}   all messages after SEQ
                   {"type": "beat"}                          the kernel is still running; every 5 s
                   {"type": "closed", "status", "message"}   the service cannot be reached
                   {"type": "answer", "id": N, "status", "body"}
"""

from __future__ import annotations

import contextvars
import time
from threading import Thread
from typing import Any

import anywidget
import traitlets

from jupyter_ext.frontend import STATIC, Hearing, this_shell
from jupyter_ext.views.comm_api import answer
from jupyter_ext.views.message_relay import MessageRelay, RelayPage
from jupyter_ext.views.saved_state import curves_of, saved_json, search_of
from kernel_backend import discovery
from kernel_backend.client import Client
from kernel_backend.errors import DaylightError
from kernel_backend.model.views.overview import Overview

PATIENCE_S = 3.0  # for a service that does not answer: the page retries by itself

_widgets: dict[int, ExperimentWidget] = {}  # one per experiment, however often it is displayed


def widget_of(overview: Overview, saved: dict[str, Any]) -> ExperimentWidget:
    """Return the widget of an experiment, created or updated; `saved` is the JSON under MIME_TYPE in its display."""
    number = overview.experiment.number
    widget = _widgets.get(number)
    if widget is None:
        widget = _widgets[number] = ExperimentWidget(number, saved)
    else:
        widget.saved = {**saved, "captured": widget.saved["captured"] or saved["captured"]}
    if not overview.ended:
        widget.feed.watch(overview.seq)
    return widget


class ExperimentWidget(anywidget.AnyWidget):
    """Widget of one experiment in all of its displays; it runs the same code as JupyterLab's extension."""

    _esm = STATIC / "widget.js"
    _css = STATIC / "widget.css"
    number = traitlets.Int().tag(sync=True)
    saved = traitlets.Dict().tag(sync=True)

    def __init__(self, number: int, saved: dict[str, Any]) -> None:
        super().__init__(number=number, saved=saved)
        self._client, self._hearing = _client(), Hearing(this_shell())
        # Sent as a reply to the last message received: a kernel with subshells routes by it.
        self._context = contextvars.copy_context()
        self.feed = MessageRelay(_client, number, RelayPage(self._say, self._save, self._hearing.silence))
        self.on_msg(self._heard)

    def reference(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the data and the metadata of a MIME bundle that displays the widget.

        The caller adds the picture and the text to them.
        """
        data, metadata = self._repr_mimebundle_() or ({}, {})
        data.pop("text/plain", None)
        return data, metadata

    def close(self) -> None:
        """Close the widget in every page, and its stream from the service."""
        if hasattr(self, "feed"):  # False if creating the widget failed
            self.feed.stop()
            self._hearing.close()
            _widgets.pop(self.number, None)
        super().close()

    def _heard(self, widget: object, content: dict[str, Any], buffers: object) -> None:
        self._context = contextvars.copy_context()
        self._hearing.heard()
        match content:
            case {"type": "watch", "after": int(after)}:
                self.feed.watch(after)
            case {"type": "here", "after": int(after)}:
                self.feed.here(after)
            case {"id": int(id), "method": str(method), "path": str(path)}:
                # In a separate thread, as a service that does not answer must not block cells.
                question = (id, method, path, content.get("query") or {})
                Thread(target=self._answer, args=question, name="daylight answer", daemon=True).start()

    def _answer(self, id: int, method: str, path: str, query: dict[str, Any]) -> None:
        status, body = answer(self._client, self.number, method, path, query)
        self._say({"type": "answer", "id": id, "status": status, "body": body})

    def _say(self, content: dict[str, Any]) -> None:
        self._context.copy().run(self.send, content)

    def _save(self) -> None:
        try:
            # In this order: curves fetched after the overview include every report before its number.
            overview = self._client.experiment(self.number)
            curves, search = curves_of(self._client, overview), search_of(self._client, overview)
        except DaylightError:
            return  # the earlier state stays
        saved = saved_json(overview, time.time(), self.saved["captured"], curves, search)
        self._context.copy().run(setattr, self, "saved", saved)


def _client() -> Client:
    """Return a client that prints no messages, as they would appear in the running cell."""
    return Client(discovery.start, patience=PATIENCE_S, say=lambda text: None)
