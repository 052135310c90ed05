"""Show an experiment below a cell, in a display that is redrawn after changes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jupyter_ext.frontend import lacks_for_widget, this_shell
from jupyter_ext.views.card import bundle
from jupyter_ext.views.saved_state import MIME_TYPE, SavedSearch, curves_of, picture_of, search_of
from kernel_backend.client import Client
from kernel_backend.model.views.curves import Curves
from kernel_backend.model.views.overview import Overview
from kernel_backend.text.terminal import tell

if TYPE_CHECKING:
    from jupyter_ext.views.widget import ExperimentWidget

# A frontend with Daylight's extension updates itself; these redraws are for all others.
BETWEEN_S = 2.0  # between drawings, unless the state has changed
CURVES_S = 15.0  # between pictures, which cost the service time


class LiveView:
    """Display of one experiment below a cell; `captured` are sentences about its submission.

    With `widget`, the output has a live widget beside picture, card and text, and is redrawn only at the end.
    """

    def __init__(self, client: Client, captured: Sequence[str] = (), *, widget: bool = False) -> None:
        lacks = lacks_for_widget() if widget else None
        self._client, self._captured = client, [*captured, *([lacks] if lacks else [])]
        self._wants_widget = widget and lacks is None
        self._widget: ExperimentWidget | None = None
        self._handle: Any = None
        self._drawn = self._asked = float("-inf")
        self._shown: Overview | None = None
        self._picture: bytes | None = None
        self._curves: Curves | None = None
        self._search: SavedSearch | None = None

    def show(self, overview: Overview, *, final: bool = False) -> None:
        """Redraw the experiment if it has changed, at a limited rate; a `final` state is always drawn."""
        if not final and not self._is_due(overview):
            return
        self._drawn, self._shown = time.monotonic(), overview
        self._ask(overview, at_once=final)
        data = bundle(overview, time.time(), self._captured, self._picture, self._curves, self._search)
        if self._wants_widget:
            self._draw(*self._with_widget(overview, data))
        else:
            self._draw(data, {})

    def _is_due(self, overview: Overview) -> bool:
        if self._shown is None:
            return True
        if self._wants_widget or overview == self._shown:
            return False
        return overview.state != self._shown.state or time.monotonic() - self._drawn >= BETWEEN_S

    def _ask(self, overview: Overview, *, at_once: bool) -> None:
        """Fetch picture, curves and search status from the service if those at hand are old; keep these if that fails.

        With `at_once` they are fetched in any case.
        """
        if not at_once and time.monotonic() - self._asked < CURVES_S:
            return
        self._picture = picture_of(self._client, overview) or self._picture
        self._curves = curves_of(self._client, overview) or self._curves
        self._search = search_of(self._client, overview) or self._search
        if self._picture is not None:
            self._asked = time.monotonic()

    def _with_widget(self, overview: Overview, data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        from jupyter_ext.views.widget import widget_of

        if self._widget is None:
            self._widget = widget_of(overview, data[MIME_TYPE])
        reference, metadata = self._widget.reference()
        del data[MIME_TYPE]  # one live view is enough
        return data | reference, metadata

    def _draw(self, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        from IPython.display import display

        if this_shell() is None:
            tell(data["text/plain"])  # `display` would print the dictionary
            return
        if self._handle is None:
            self._handle = display(data, metadata=metadata, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(data, metadata=metadata, raw=True)
