"""Complete experiment overviews for a user: add why experiments wait, and warnings about snapshots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.facts import BatchSize
from kernel_backend.model.facts import known as facts
from kernel_backend.model.states import HOLDING_SLOTS, Hold, TrialState
from kernel_backend.model.trial import Trial
from kernel_backend.model.versions import read
from kernel_backend.model.views.overview import Overview, Wait
from kernel_backend.model.views.starting import starting_text
from kernel_backend.scheduler.explain.explain import explain
from kernel_backend.scheduler.explain.feasibility import impossible
from kernel_backend.scheduler.requests import ANY_TRIAL
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.search.followed import training_of
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.state.requests import plain_request, pools_of
from kernel_backend.service.state.start_phases import StartPhases
from kernel_backend.service.views.redaction import NoteRedactor
from kernel_backend.snapshots.archive import UNREADABLE, Archive
from kernel_backend.store.base import Store

WARNED = 4096  # snapshots whose warnings are cached: an archive never changes


class Overviews:
    """View that adds to overviews why experiments wait, and warnings; it hides what a user may not see."""

    def __init__(
        self,
        store: Store,
        archive: Archive,
        cluster_state: ClusterStateManager,
        failed: Callable[[Experiment], str | None],
        phases: StartPhases,
    ) -> None:
        """Create the view; `failed` returns the failure that ended or delays a search, if any."""
        self._store, self._cluster_state, self._failed, self._phases = store, cluster_state, failed, phases
        self._snapshot_warnings = lru_cache(WARNED)(lambda id: archive.snapshot(id).warnings)

    async def one(self, who: Person, number: int) -> Overview:
        """Return the overview of an experiment, without what this user may not see; raises NotFound."""
        known = await asyncio.to_thread(self._store.overview, number)
        (completed,) = await self.complete(who, [known])
        return completed

    async def explain_searches(self, who: Person, known: Sequence[Overview]) -> list[Overview]:
        """Return overviews with reasons for the waits of searches, whose state depends on them, and of no others."""
        active = [each.experiment.config.search is not None and not each.ended for each in known]
        if not any(active):
            return list(known)
        async with self._cluster_state.looking() as cluster:
            return await asyncio.to_thread(
                lambda: [
                    each.model_copy(update={"wait": self._wait(who, each, cluster)}) if waits else each
                    for each, waits in zip(known, active, strict=True)
                ]
            )

    async def complete(self, who: Person, known: Sequence[Overview]) -> list[Overview]:
        """Return overviews with reasons for waits and further warnings, without what the user `who` may not see."""
        waits: list[Wait | None] = [None] * len(known)
        if not all(each.ended for each in known):
            async with self._cluster_state.looking() as cluster:
                waits = await asyncio.to_thread(lambda: [self._wait(who, each, cluster) for each in known])
        reader = NoteRedactor(self._store, who)
        return await asyncio.to_thread(
            lambda: [self._complete(reader, *each) for each in zip(known, waits, strict=True)]
        )

    def _wait(self, who: Person, known: Overview, cluster: ClusterState) -> Wait | None:
        """Return why and since when an experiment has been waiting; None if it is not waiting.

        `cluster` may be slightly newer than the trials in the overview.
        """
        if known.state == TrialState.QUEUED and known.pending:
            return self._cluster_state.pending_wait(known.pending[0].id)
        requests = [] if known.ended else self._cluster_state.requests_of(known.experiment.number)
        states = {trial.state for trial in known.trials}
        waits = TrialState.QUEUED in states or (
            requests and requests[0].trial == ANY_TRIAL and not states & HOLDING_SLOTS
        )
        if requests and waits:
            return explain(cluster, requests[0], self._cluster_state.lengths, who)
        return _impossible(who, known.experiment, known.trials, cluster)

    def _complete(self, reader: NoteRedactor, known: Overview, wait: Wait | None) -> Overview:
        failed = self._failed(known.experiment)
        notes = map(reader.note, known.warnings)
        warnings = (*self._warnings(known.experiment.snapshot), *notes, *([failed] if failed else []))
        search = known.experiment.config.search
        default = search.default_trials if search is not None else None
        warnings = tuple(dict.fromkeys(warnings))
        evaluated = self._evaluated(known)
        warnings = (*warnings, *evaluated)
        informational = (*map(reader.note, known.informational), *evaluated)
        more = {
            "informational": informational,
            "default_trials": default,
            "found_batch_size": self._batch_size(known.experiment),
            "starting": self._starting(known),
        }
        return known.model_copy(update={"wait": wait, "warnings": warnings, **more})

    def _evaluated(self, known: Overview) -> tuple[str, ...]:
        """Return which evaluation follows a training that awaits one."""
        number = known.experiment.number
        if known.ended or not known.experiment.config.await_evaluation:
            return ()
        active = self._cluster_state.cache.searches.values()
        by = [f"#{each.number}" for each in active if each.config.follows and training_of(each).experiment == number]
        if by:
            return (f"its validations come from {', '.join(by)}",)
        return (f"no evaluation follows it yet: daylight evaluate {number} --follow --data DATA",)

    def _starting(self, known: Overview) -> str:
        told = self._phases.of(known.attempts[-1].id) if known.attempts else None
        return starting_text(known, told, time.time())

    def _batch_size(self, experiment: Experiment) -> int | None:
        """Return the batch size that `--batch-size auto` has found for an experiment; None if it has found none yet.

        None also for a search, whose trials may have different ones.
        """
        if experiment.config.auto_batch is None or experiment.config.search is not None:
            return None
        found = facts(self._store.facts(experiment.number, 1)).get("batch")
        return None if found is None else read(BatchSize, found).size

    def _warnings(self, id: str) -> tuple[str, ...]:
        try:
            return self._snapshot_warnings(id)
        except UNREADABLE as error:
            # A damaged archive must not hide its experiment, or the whole list.
            return (f"its snapshot cannot be read ({type(error).__name__}): it trains no more",)


def _impossible(who: Person, experiment: Experiment, trials: Sequence[Trial], cluster: ClusterState) -> Wait | None:
    """Return why trials that are held as impossible to place must wait: nodes are too small, or too many excluded.

    None if no trial is held for that reason.
    """
    held = [trial for trial in trials if Hold.ENGINE in trial.holds]
    if not held:
        return None
    request = plain_request(experiment, held[0], pools_of(experiment.config, cluster))
    never = impossible(cluster, request, who)
    reason = "possible again, and about to be queued"
    if never is not None:
        reason = f"{never.reason} It goes on by itself as soon as that is possible."
    excluded = sorted(frozenset[str]().union(*(trial.excluded for trial in held)))
    if excluded and impossible(cluster, replace(request, excluded=frozenset())) is None:
        nodes = ", ".join(excluded)
        reason = f"left out after a line of the log (--on-log): {nodes}; pause and resume it to try there again"
    return Wait(reason=reason, place=1)
