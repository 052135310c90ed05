"""Checkpoints that trials begin from, of others: copied beside the loop, which starts what else there is meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from kernel_backend.checkpoints.places import Places
from kernel_backend.checkpoints.taken import take_over
from kernel_backend.errors import CheckpointDamaged, DaylightError, NotFound, PlaceUnavailable
from kernel_backend.model.trial import Trial

AGAIN_S = 60.0  # after a copy that failed by something that may pass, as a full disk
_log = logging.getLogger(__name__)


class Beginnings:
    """What becomes of the copies. Works in threads of its own, which end with the service."""

    def __init__(self, places: Places, wake: Callable[[], None]) -> None:
        self._places, self._wake = places, wake
        self._guard = threading.Lock()
        self._copying: set[tuple[int, int]] = set()
        self._failed: dict[tuple[int, int], tuple[float, DaylightError | OSError]] = {}  # when, and by what
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Remember the running event loop: it is woken when a copy has ended."""
        self._loop = asyncio.get_running_loop()

    def wait(self, trial: Trial, source: str | None, *, or_newer: bool = False) -> str:
        """What a trial that begins from a checkpoint `source` waits for; "" for nothing, or where none will come.

        `or_newer`: a newer one of the same trial will do where it has been deleted.
        """
        key = trial.experiment, trial.index
        if source is None or trial.attempt or self.missing(*key) is not None:
            return ""
        with self._guard:
            if key not in self._copying:
                when, error = self._failed.get(key, (0.0, None))
                if error is not None and time.monotonic() - when < AGAIN_S:
                    return f"checkpoint {source} could not be copied: {error}; this is tried again"
                try:
                    if self._places.open(*key).committed():
                        return ""
                except (PlaceUnavailable, CheckpointDamaged) as unknown:
                    return unknown.message
                except OSError as error:  # a disk that is away is this trial's trouble alone
                    return f"its checkpoints cannot be reached just now: {error.strerror or error}"
                self._copying.add(key)
                threading.Thread(target=self._copy, args=(source, *key, or_newer), daemon=True).start()
        return f"checkpoint {source}, from which it begins, is being copied"

    def missing(self, experiment: int, trial: int) -> NotFound | CheckpointDamaged | None:
        """Why there is nothing for a trial to begin from, and never will be."""
        _, error = self._failed.get((experiment, trial), (0.0, None))
        return error if isinstance(error, NotFound | CheckpointDamaged) else None

    def _copy(self, source: str, experiment: int, trial: int, or_newer: bool) -> None:
        key, failed = (experiment, trial), None
        try:
            take_over(self._places, source, self._places.open(*key), *key, or_newer=or_newer)
        except (DaylightError, OSError) as error:
            failed = error
            _log.warning("trial %d.%d: %s", *key, error)
        except Exception as error:  # whatever it is, its trial says it
            failed = OSError(f"{type(error).__name__}: {error}")
            _log.exception("trial %d.%d", *key)
        with self._guard:
            self._copying.discard(key)
            self._failed.pop(key, None)
            if failed is not None:
                self._failed[key] = time.monotonic(), failed
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)
