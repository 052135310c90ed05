"""Find gangs that leave their slots unused, and apply the rule that admins have set for them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from kernel_backend.errors import Conflict, DaylightError
from kernel_backend.model import events as e
from kernel_backend.model.cluster.idle import TrialKey, idle_seconds
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.states import ExperimentState, TrialState
from kernel_backend.service.context import Context
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.spec.config_text import duration_word

LOOK_S = 60.0  # between looks
SHOWN_S = 300.0  # idle time from which users see it
LONGEST_S = 4 * 3600.0  # length of a period in the second week of an attempt
_log = logging.getLogger(__name__)


class IdleReview:
    """Review of how gangs use their slots.

    `idle` has the gangs that leave their slots unused, with the number of seconds for which they have done so.
    """

    def __init__(self, context: Context, cluster_state: ClusterStateManager, changed: Callable[[], None]) -> None:
        self._store, self._rule, self._cluster_state = context.store, context.idle_rule, cluster_state
        self._bus, self._changed = context.bus, changed
        self._told: set[AttemptId] = set()
        self.idle: Mapping[TrialKey, float] = {}

    async def run(self) -> None:
        """Review once a minute until cancelled; after an error, which is logged, the next review tries again."""
        while True:
            try:
                await self.review(time.time())
            except DaylightError as error:
                _log.warning("whether slots are idle is not known now: %s", error)
            await asyncio.sleep(LOOK_S)

    async def review(self, at: float) -> None:
        """Find the gangs that are idle at the time `at`, and apply the admins' rule to those idle for long enough.

        A gang is idle if it leaves its slots unused.
        """
        async with self._cluster_state.looking() as cluster:
            gangs = [run for run in cluster.runs.values() if run.key.is_gang and not run.waiting]
            sizes = {(run.key.experiment, run.key.trial): run.slots for run in gangs}
        used = await asyncio.to_thread(self._store.recent_use, at - self._rule.after - LONGEST_S)
        found = await asyncio.to_thread(idle_seconds, used, sizes, self._rule.below, at)
        self.idle = {key: seconds for key, seconds in found.items() if seconds >= SHOWN_S}
        for key, seconds in found.items():
            if self._rule.action and seconds >= self._rule.after:
                await self._apply(key, at)

    async def _apply(self, key: TrialKey, at: float) -> None:
        """Store a note for the owner of a trial, once per attempt, that its gang leaves its slots unused.

        If the admins' rule is `release`, also pause the experiment, unless it is a search.
        """
        number, index = key
        trial = await asyncio.to_thread(self._store.trial, number, index)
        experiment = await asyncio.to_thread(self._store.experiment, number)
        attempt = AttemptId(number, index, trial.attempt)
        if attempt in self._told or trial.state is not TrialState.RUNNING:
            return
        self._told.add(attempt)
        release = self._rule.action == "release" and experiment.config.search is None
        use = f"less than {100 * self._rule.below:g} % of its slots in use for {duration_word(self._rule.after)}"
        note = f"paused: {use}; daylight resume {number} goes on" if release else f"{use}: see daylight top {number}"
        await asyncio.to_thread(self._store.note, attempt, note, at)
        if release and experiment.state is ExperimentState.ACTIVE:
            try:
                await asyncio.to_thread(self._store.advance_experiment, number, e.Paused(), at)
            except Conflict:  # its owner was faster
                return
            self._changed()
        self._bus.notify()
