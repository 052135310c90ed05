"""Read the status and the learning curves of searches; what was read is cached, and only changes are read."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.search.records import Settings
from kernel_backend.model.states import HOLDING_SLOTS
from kernel_backend.model.views.search_status import Importance, SearchCurves, SearchStatus, TrialSummary
from kernel_backend.search.report.status import Page, SearchHistory, curves, ranked_values, search_status
from kernel_backend.search.report.study import importance
from kernel_backend.store.base import Store

KEPT = 8  # searches that are cached: the next read continues from there
PAGE = 5000  # log entries that are read at once
FEW = 1000  # changed trials that are read one by one; of more, all are read
T = TypeVar("T")


@dataclass
class CachedSearch:
    """What is cached of a search: its history, and its trials with their slot-seconds, up to message `seq`."""

    history: SearchHistory
    seq: int = 0
    trials: dict[int, TrialSummary] = field(default_factory=dict)  # by index, in this order
    seconds: dict[int, float] = field(default_factory=dict)

    @property
    def summaries(self) -> list[TrialSummary]:
        """Return the summaries of all trials, by index."""
        return list(self.trials.values())


class SearchReader:
    """Read searches, each for one caller at a time, so that concurrent callers share what is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: dict[int, CachedSearch] = {}  # most recently used last
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def status(self, experiment: Experiment, settings: Settings, page: Page) -> SearchStatus:
        """Return the status of a search with the trials of a page; raises InvalidRequest for an unknown column."""
        now = time.time()

        def answer(cached: CachedSearch) -> SearchStatus:
            self._update(experiment.number, cached, now)
            return search_status(experiment, cached.history, cached.summaries, cached.seconds, now, page)

        return await self._answer(experiment, settings, answer)

    async def curves(self, experiment: Experiment, settings: Settings, limit: int, points: int) -> SearchCurves:
        """Return the learning curves of a search's trials, best first."""

        def answer(cached: CachedSearch) -> SearchCurves:
            self._update(experiment.number, cached, time.time())
            return curves(experiment, cached.history, cached.summaries, limit, points)

        return await self._answer(experiment, settings, answer)

    async def importance(self, experiment: Experiment, settings: Settings) -> Importance:
        """Return the importance of each hyperparameter of a search."""

        def answer(cached: CachedSearch) -> Importance:
            unit, values = ranked_values(cached.history)
            params = [cached.history.trials[trial].params for trial in values]
            return importance(experiment.config.metric.mode, experiment.space, params, list(values.values()), unit)

        return await self._answer(experiment, settings, answer)

    async def _answer(self, experiment: Experiment, settings: Settings, answer: Callable[[CachedSearch], T]) -> T:
        number = experiment.number
        async with self._locks[number]:
            cached = self._cache.pop(number, None)
            if cached is None or cached.history.settings != settings:
                cached = CachedSearch(SearchHistory(settings, experiment.space, experiment.created_at))
            try:
                found = await asyncio.to_thread(self._work, number, cached, answer)
            except InvalidRequest:
                self._keep(number, cached)
                raise
            self._keep(number, cached)
        return found

    def _keep(self, number: int, cached: CachedSearch) -> None:
        self._cache[number] = cached
        while len(self._cache) > KEPT:
            del self._cache[next(iter(self._cache))]

    def _work(self, number: int, cached: CachedSearch, answer: Callable[[CachedSearch], T]) -> T:
        history = cached.history
        if history.replays:
            while page := self._store.search_log(number, history.entries, PAGE):
                history.take(page)
        else:
            while brief := self._store.brief_log(number, history.entries, PAGE):
                history.take_brief(brief)
        return answer(cached)

    def _update(self, number: int, cached: CachedSearch, now: float) -> None:
        """Read the trials that have changed since, and the slot-seconds of those that have changed or hold slots."""
        holding = {index for index, trial in cached.trials.items() if trial.state in HOLDING_SLOTS}
        last = self._store.last_seq()  # read first: later changes may then be read twice, but none is missed
        changed = self._store.touched_trials(number, cached.seq) if cached.seq else None
        some = changed if changed is not None and len(changed) <= FEW else None
        if some is None or some:
            cached.trials |= {each.index: each for each in self._store.outlines(number, some)}
        spending = None if some is None or len(some | holding) > FEW else some | holding
        if spending is None or spending:
            cached.seconds |= self._store.trial_seconds(number, now, spending)
        cached.seq = last
