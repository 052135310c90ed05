"""Read the status and the learning curves of searches from a cache, which is updated by what has changed.

The cache is stored, so that after a restart of the service only what has changed since then is read. It is stored after
a request was answered, so that the user does not wait for that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import TypeVar

from kernel_backend.errors import DaylightError
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.search.records import Settings
from kernel_backend.model.states import HOLDING_SLOTS, ExperimentState
from kernel_backend.model.views.search_status import Importance, SearchCurves, SearchStatus
from kernel_backend.search.report.history import SearchHistory, ranked_values
from kernel_backend.search.report.status import Page, curves, search_status
from kernel_backend.search.report.study import importance
from kernel_backend.search.settings import settings_of
from kernel_backend.service.search.stored import CachedSearch, pack, unpack
from kernel_backend.store.base import Store

KEPT = 8  # searches that are cached: the next read continues from there
PAGE = 5000  # log entries that are read at once
FEW = 1000  # changed trials that are read one by one; of more, all are read
GROWN = 20_000  # log entries since the last time after which a search is stored again: they are read in 0.2 s
GROWN_AT_REST = 1000  # the same for a search that does not train, so that few entries will follow
KEEP_UP_S = 60.0  # interval at which active searches are read that nobody looks at
T = TypeVar("T")
_log = logging.getLogger(__name__)


class SearchReader:
    """Reader of searches for users' views; requests for one search are answered one after another.

    A later request then uses the data that the earlier one has read into the cache.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: dict[int, CachedSearch] = {}  # most recently used last
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._stored: dict[int, int] = {}  # number of the last log entry in what is stored of a search
        self._unstored = set[int]()  # searches in the cache that have grown enough to be stored
        self._has_unstored = asyncio.Event()

    async def status(self, experiment: Experiment, settings: Settings, page: Page) -> SearchStatus:
        """Return the status of a search, with the trials of a page; raises InvalidRequest for an unknown column."""

        def answer(cached: CachedSearch) -> SearchStatus:
            return search_status(experiment, cached.history, cached.summaries, cached.seconds, time.time(), page)

        return await self._answer(experiment, settings, answer)

    async def curves(self, experiment: Experiment, settings: Settings, limit: int, points: int) -> SearchCurves:
        """Return the learning curves of at most `limit` trials of a search, best first, of at most `points` points."""

        def answer(cached: CachedSearch) -> SearchCurves:
            return curves(experiment, cached.history, cached.summaries, limit, points)

        return await self._answer(experiment, settings, answer)

    async def importance(self, experiment: Experiment, settings: Settings) -> Importance:
        """Return the importance of each hyperparameter of a search."""

        def answer(cached: CachedSearch) -> Importance:
            unit, values = ranked_values(cached.history)
            params = [cached.history.trials[trial].params for trial in values]
            return importance(experiment.config.metric.mode, experiment.space, params, list(values.values()), unit)

        return await self._answer(experiment, settings, answer)

    async def run(self, active: Callable[[], Collection[Experiment]]) -> None:
        """Keep the stored caches of active searches up to date until cancelled; `active` returns these searches."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._store_what_was_read())
            tasks.create_task(self._look_at(active))

    async def _store_what_was_read(self) -> None:
        while True:
            await self._has_unstored.wait()
            try:
                await self.store_grown()
            except DaylightError as error:
                _log.warning("the histories of searches are stored later: %s", error)

    async def _look_at(self, active: Callable[[], Collection[Experiment]]) -> None:
        known: dict[int, Experiment] = {}
        while True:
            await asyncio.sleep(KEEP_UP_S)
            now = {each.number: each for each in active()}
            try:
                ended = [await asyncio.to_thread(self._store.experiment, number) for number in known.keys() - now]
                await self.keep_up([*now.values(), *ended])
            except DaylightError as error:
                _log.warning("the histories of searches are read later: %s", error)
            else:
                known = now

    async def keep_up(self, experiments: Collection[Experiment]) -> None:
        """Update the caches (in memory) of searches whose logs have grown much since their caches were last stored.

        The task of `run` then stores them.
        """
        for experiment in experiments:
            if await asyncio.to_thread(self._has_grown, experiment):
                await self._answer(experiment, settings_of(experiment.config), lambda cached: None)

    async def store_grown(self) -> None:
        """Store the caches (in memory) to which many log entries have been added since they were last stored.

        They are stored as they are, without an update.
        """
        self._has_unstored.clear()
        while self._unstored:
            number = self._unstored.pop()
            async with self._locks[number]:
                cached = self._cache.get(number)
                if cached is not None:
                    packed = await asyncio.to_thread(pack, cached)
                    await asyncio.to_thread(self._store.keep_search_history, number, packed)
                    cached.stored = self._stored[number] = cached.history.entries

    def _has_grown(self, experiment: Experiment) -> bool:
        after = self._stored.get(experiment.number, 0) + _grown(experiment) - 1
        return bool(self._store.brief_log(experiment.number, after, 1))

    async def _answer(self, experiment: Experiment, settings: Settings, answer: Callable[[CachedSearch], T]) -> T:
        number = experiment.number
        async with self._locks[number]:
            cached = self._cache.pop(number, None)
            if cached is not None and cached.history.settings != settings:
                cached = None
            cached = await asyncio.to_thread(self._follow, experiment, settings, cached)
            self._keep(number, cached)
            found = await asyncio.to_thread(answer, cached)
            if cached.history.entries - cached.stored >= _grown(experiment):
                self._unstored.add(number)
                self._has_unstored.set()
            return found

    def _keep(self, number: int, cached: CachedSearch) -> None:
        self._cache[number] = cached
        while len(self._cache) > KEPT:
            del self._cache[next(iter(self._cache))]

    def _follow(self, experiment: Experiment, settings: Settings, cached: CachedSearch | None) -> CachedSearch:
        """Return the cache of a search, updated to the newest state.

        It starts from `cached`, the cache in memory, else from the stored one, else from nothing.
        """
        number = experiment.number
        cached = cached or self._restored(experiment, settings)
        if cached is not None and cached.history.restored is not None and self._more(number, cached):
            cached = None  # its searcher decides by what it knows of all entries
        if cached is None:
            cached = CachedSearch(SearchHistory(settings, experiment.space, experiment.created_at))
        self._read_log(number, cached.history)
        self._update(number, cached, time.time())
        return cached

    def _restored(self, experiment: Experiment, settings: Settings) -> CachedSearch | None:
        packed = self._store.search_history(experiment.number)
        if packed is None:
            return None
        found = unpack(packed, settings, experiment.space, experiment.created_at)
        self._stored[experiment.number] = 0 if found is None else found.stored
        return found

    def _more(self, number: int, cached: CachedSearch) -> bool:
        return bool(self._store.brief_log(number, cached.history.entries, 1))

    def _read_log(self, number: int, history: SearchHistory) -> None:
        if history.restored is not None:
            return
        if history.replays:
            while page := self._store.search_log(number, history.entries, PAGE):
                history.take(page)
        else:
            while brief := self._store.brief_log(number, history.entries, PAGE):
                history.take_brief(brief)

    def _update(self, number: int, cached: CachedSearch, now: float) -> None:
        """Update the trials in a cache that have changed since the last update, and their slot-seconds up to `now`.

        The slot-seconds of trials that hold slots are updated as well.
        """
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


def _grown(experiment: Experiment) -> int:
    """Return how many log entries a search must have gained since its cache was stored, for it to be stored again.

    A search that does not train has a lower threshold, as few entries will follow.
    """
    return GROWN if experiment.state is ExperimentState.ACTIVE else GROWN_AT_REST
