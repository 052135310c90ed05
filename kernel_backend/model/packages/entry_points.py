"""Find what other packages add to Daylight by entry points, without importing them."""

from __future__ import annotations

import importlib
import threading
from importlib.metadata import EntryPoint, entry_points

_MOST = 300  # characters of an error


class EntryPoints:
    """Entry points of one group, read from the metadata of packages when they are first asked for."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._lock = threading.RLock()
        self._found: dict[str, list[EntryPoint]] | None = None

    def by_name(self, refresh: bool = False) -> dict[str, list[EntryPoint]]:
        """Return the entry points of each name, in several packages perhaps; `refresh` reads the metadata anew."""
        with self._lock:
            if self._found is None or refresh:
                importlib.invalidate_caches()
                found: dict[str, list[EntryPoint]] = {}
                for entry in entry_points(group=self.group):
                    found.setdefault(entry.name, []).append(entry)
                self._found = found
            return self._found


def package_of(entry: EntryPoint) -> str:
    """Return the distribution of an entry point with its version, such as `daylight-annealing 1.0`."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.module


def described(error: BaseException) -> str:
    """Return an error of a package's code as text for a message."""
    return f"{type(error).__name__}: {error}".rstrip(": ")[:_MOST]
