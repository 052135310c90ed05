"""Call what watches a program, such as curves and rehearsals, so that its errors cost only itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Watchers:
    """Guard around all functions that watch a program: one that raises is switched off, and the training goes on."""

    def __init__(self, note: Callable[[str], object] = len) -> None:
        """Set up the guard; `note` shows the user a warning."""
        self._note = note
        self._off: list[Any] = []

    def call(self, watch: Callable[..., T], *given: Any) -> T | None:
        """Return `watch(*given)`; None if it raises an Exception, or its object was switched off by an earlier one.

        An object that is switched off is closed, if it has a method for that.
        """
        owner = getattr(watch, "__self__", watch)
        if any(each is owner for each in self._off):
            return None
        try:
            return watch(*given)
        except Exception as error:
            self._off.append(owner)
            with contextlib.suppress(Exception):
                getattr(owner, "close", int)()
            with contextlib.suppress(Exception):
                told = f"{watch.__qualname__} raised {type(error).__name__}: {error}"
                self._note(f"{told}; the training goes on without it")
            return None
