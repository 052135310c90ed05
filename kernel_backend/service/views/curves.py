"""Compute curves of trials from their reports; points are cached, so that only new reports are read from the store."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from kernel_backend.model.views.curves import Curves, ReportedValues, join, thin
from kernel_backend.store.base import Store

KEPT = 1_000_000  # values of all cached trials together, 32 bytes each


class CurveReader:
    """Reader that reduces the reports of a trial to learning curves with few points.

    It serves one caller of a trial at a time, so that concurrent callers share its cache.
    """

    def __init__(self, store: Store, kept: int = KEPT) -> None:
        self._store, self._kept = store, kept
        self._told: dict[tuple[int, int], ReportedValues] = {}  # by experiment and trial; most recently used last
        self._locks: WeakValueDictionary[tuple[int, int], asyncio.Lock] = WeakValueDictionary()

    async def curves(self, number: int, trial: int, points: int) -> Curves:
        """Return a trial's current learning curves, downsampled to at most `points` points each; raises NotFound."""
        async with self._locks.setdefault((number, trial), asyncio.Lock()):
            known = self._told.pop((number, trial), ReportedValues())
            reported_values, curves = await asyncio.to_thread(self._read, number, trial, known, points)
            self._told[number, trial] = reported_values
            self._forget()
        return curves

    def _read(self, number: int, trial: int, known: ReportedValues, points: int) -> tuple[ReportedValues, Curves]:
        self._store.trial(number, trial)  # raises NotFound
        more = self._store.reported_values(number, trial, known.seq)
        reported_values = join([known, more]) if more.seq else known
        return reported_values, thin(trial, reported_values, points)

    def _forget(self) -> None:
        """Remove the least recently used curves until the cache is small enough; the newest always stays."""
        while (
            len(self._told) > 1 and sum(reported_values.values for reported_values in self._told.values()) > self._kept
        ):
            del self._told[next(iter(self._told))]
