"""A card in the notebook that is drawn again when something has changed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from jupyter_ext.views.card import bundle
from kernel_backend.client import Client
from kernel_backend.errors import DaylightError
from kernel_backend.model.overview import Overview

BETWEEN_S = 1.0  # from one drawing to the next


class LiveView:
    """The card of one experiment below a cell; `captured` are sentences about its submission."""

    def __init__(self, client: Client, captured: Sequence[str] = ()) -> None:
        self._client, self._captured = client, captured
        self._handle: Any = None
        self._drawn = float("-inf")
        self._shown: Overview | None = None

    def show(self, overview: Overview, *, final: bool = False) -> None:
        """Draw the experiment: at most once a second, but the `final` one always, and with the curves."""
        now = time.monotonic()
        if not final and (now - self._drawn < BETWEEN_S or overview == self._shown):
            return
        self._drawn, self._shown = now, overview
        picture = self._picture(overview) if final else None
        self._draw(bundle(overview, time.time(), self._captured, picture))

    def _draw(self, data: dict[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(data, raw=True)

    def _picture(self, overview: Overview) -> bytes | None:
        """The curves, where there are any: a card without them is still a card."""
        if not any(trial.step for trial in overview.trials):
            return None
        try:
            return self._client.picture(overview.experiment.number)
        except DaylightError:
            return None
