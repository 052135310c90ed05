"""Show the status of a search, and let users steer it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kernel_backend.errors import Conflict, InvalidRequest
from kernel_backend.model import events as e
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.search import registry
from kernel_backend.model.search.effects import Moved
from kernel_backend.model.search.methods import SearchMethods
from kernel_backend.model.search.records import Prune, Search, Settings
from kernel_backend.model.states import EXPERIMENT_ENDED, TRIAL_ENDED, ExperimentState
from kernel_backend.model.views.search_status import Extension, Importance, SearchCurves, SearchStatus
from kernel_backend.scheduler.budgets import used_up
from kernel_backend.search.effects import effect
from kernel_backend.search.report.status import Page
from kernel_backend.search.settings import settings_of
from kernel_backend.service.access import changeable, may_continue, visible
from kernel_backend.service.audit import audit_entry, keep_audit_entry
from kernel_backend.service.loop.loop import Loop
from kernel_backend.service.search.reader import SearchReader
from kernel_backend.spec.config_text import check_bounds
from kernel_backend.store.base import Store


class SearchVerbs:
    """Operations on searches; `changed` is called after each operation that changes a search."""

    def __init__(self, store: Store, loop: Loop, changed: Callable[[], None]) -> None:
        self._store, self._loop, self._changed = store, loop, changed
        self._reader = SearchReader(store)

    async def run(self) -> None:
        """Keep the stored caches for users' views of unfinished searches up to date, until cancelled."""
        cache = self._loop.cluster_state.cache
        await self._reader.run(lambda: list(cache.searches.values()))

    # Reading

    async def methods(self) -> SearchMethods:
        """Return all search methods, and why the methods of some installed packages could not be loaded."""
        problems = await asyncio.to_thread(registry.problems)
        return SearchMethods(methods=await asyncio.to_thread(registry.methods), problems=tuple(problems))

    async def status(
        self, who: Person, number: int, sort: str = "best", limit: int = 100, offset: int = 0
    ) -> SearchStatus:
        """Return the status of a search with `limit` of its trials, sorted by column `sort` (a leading `-` reverses).

        Raises NotFound, Conflict if the experiment is no search, and InvalidRequest for an unknown column.
        """
        experiment = await visible(self._store, who, number)
        return await self._reader.status(experiment, _settings(experiment), Page(sort, limit, offset))

    async def curves(self, who: Person, number: int, limit: int, points: int) -> SearchCurves:
        """Return the learning curves of at most `limit` trials of a search, best first, of at most `points` points.

        Raises the same errors as `status`.
        """
        experiment = await visible(self._store, who, number)
        return await self._reader.curves(experiment, _settings(experiment), limit, points)

    async def importance(self, who: Person, number: int) -> Importance:
        """Return how much each hyperparameter of a search affects the metric; raises the same errors as `status`."""
        experiment = await visible(self._store, who, number)
        return await self._reader.importance(experiment, _settings(experiment))

    # Steering

    async def promote(self, who: Person, number: int, trial: int) -> None:
        """Promote a trial of a search (train it to the next rung) with the next free gang, however good it is.

        Raises NotFound, Forbidden for users who may not have it trained further, and Conflict if the trial has ended.
        """
        experiment = await self._open(who, number)
        may_continue(who, experiment)
        found = await asyncio.to_thread(self._store.trial, number, trial)
        if found.state in TRIAL_ENDED:
            raise Conflict(f"trial {found.id} is {found.state}: it cannot go on")
        await asyncio.to_thread(self._loop.searches.promote, experiment, trial)
        await keep_audit_entry(self._store, audit_entry(who, experiment, "promote", on=f"#{found.id}"))
        self._changed()

    async def prune(self, who: Person, number: int, trial: int) -> None:
        """End a trial of a search for good; raises NotFound, and Conflict if the trial has ended already."""
        experiment = await self._open(who, number)
        found = await asyncio.to_thread(self._store.trial, number, trial)
        if found.state in TRIAL_ENDED:
            raise Conflict(f"trial {found.id} is {found.state}: there is nothing to prune")
        moved = effect(Prune(), found)
        if isinstance(moved, Moved) and moved.event is not None:
            at = time.time()
            await asyncio.to_thread(self._store.advance_trial, number, trial, moved.event, at, **moved.changes)
            await asyncio.to_thread(self._loop.searches.take_news, experiment)
            await keep_audit_entry(self._store, audit_entry(who, experiment, "prune", on=f"#{found.id}"))
        self._changed()

    async def extend(self, who: Person, number: int, asked: Extension) -> None:
        """Raise a search's limit of trials, slot time or duration; a completed search is continued.

        Raises NotFound, InvalidRequest if no limit is named, and Conflict if the search was stopped or has failed, if
        it has more trials already, or if its budget or time would still be used up.
        """
        if asked == Extension():
            raise InvalidRequest("extend by what? write --trials 100, --budget 20gpuh or --max-time 8h")
        async with self._loop.settling:  # else it might complete between the two writes
            before = await changeable(self._store, who, number)
            may_continue(who, before)
            ended = before.state in EXPERIMENT_ENDED and before.state is not ExperimentState.COMPLETED
            if ended or before.state is ExperimentState.STOPPING:
                raise Conflict(f"experiment #{number} is {before.state}: only a completed search can be extended")
            await asyncio.to_thread(self._extend, who, before, asked)
        self._changed()

    def _extend(self, who: Person, before: Experiment, asked: Extension) -> None:
        _settings(before)  # raises Conflict
        number, now = before.number, time.time()
        given = {name: value for name, value in asked.model_dump().items() if value is not None}
        search = Search.model_validate((before.config.search or Search()).model_dump() | given)
        check_bounds(Config(search=search))
        total = sum(self._store.trial_counts(number).values())
        if asked.trials is None and search.trials is not None and search.trials <= total:
            search = search.model_copy(update={"trials": None})  # more time allows more trials
        spent, elapsed = self._store.slot_seconds(number, now), now - before.created_at
        match used_up(search, spent, elapsed):
            case "budget":
                raise Conflict(f"{spent / 3600:.3g} slot hours are used already: add --budget with more than that")
            case "max_time":
                raise Conflict(f"{elapsed / 3600:.3g} h have passed already: add --max-time with more than that")
        config = before.config.model_copy(update={"search": search})
        self._loop.searches.extend(before, search.limit)
        entry = audit_entry(who, before, "extend", ", ".join(f"{name} {value:g}" for name, value in given.items()))
        self._store.advance_experiment(number, e.Extended(), now, entry, config=config)
        self._loop.searches.forget(number)  # its state is rebuilt with the new limits

    async def _open(self, who: Person, number: int) -> Experiment:
        experiment = await changeable(self._store, who, number)
        _settings(experiment)  # raises Conflict
        if experiment.state in EXPERIMENT_ENDED:
            hint = f": daylight extend {number} --trials N opens it again" if experiment.state == "completed" else ""
            raise Conflict(f"experiment #{number} is {experiment.state}{hint}")
        return experiment


def _settings(experiment: Experiment) -> Settings:
    """Return the settings of an experiment's search; raises Conflict if the experiment is no search."""
    if experiment.config.search is None:
        raise Conflict(f"experiment #{experiment.number} is no search: it has a single trial")
    return settings_of(experiment.config)
