"""Move experiments to other pools."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kernel_backend.errors import Conflict
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.pools import Move
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.record import checked
from kernel_backend.model.states import EXPERIMENT_ENDED, ExperimentState
from kernel_backend.model.trial import checkpoint_step
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.access import changeable, may_continue
from kernel_backend.service.audit import audit_entry
from kernel_backend.service.context import Context
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.state.requests import pools_of

# Returns the interpreter, of: owner, group, config, snapshot, and the interpreter of the submission.
PythonInPools = Callable[[str, str, Config, str, str], Awaitable[str]]


class MoveVerbs:
    """Operation that moves experiments to other pools; the control loop then stops their gangs in the earlier pools."""

    def __init__(
        self,
        context: Context,
        cluster_state: ClusterStateManager,
        python_in_pools: PythonInPools,
        changed: Callable[[], None],
    ) -> None:
        """Create the operation; `python_in_pools` raises an error if an experiment cannot train in its pools."""
        self._store, self._engines = context.store, context.engines
        self._cluster_state, self._python_in_pools, self._changed = cluster_state, python_in_pools, changed

    async def move(self, who: Person, number: int, asked: Move) -> None:
        """Move an experiment to another pool; or to several, so that it runs in the first that has enough free slots.

        Queued trials wait in the new pools from now on, at their place in the order. Running trials commit a
        checkpoint, release their slots, and continue there. Nothing is copied, since all pools keep checkpoints in one
        place. Raises NotFound, Forbidden, Conflict if the experiment has ended or the pool cannot be used now, and the
        errors of a submission to that pool. After an error nothing is changed.
        """
        before = await changeable(self._store, who, number)
        may_continue(who, before)
        _check_open(before)
        config = checked(Config, **(before.config.model_dump() | {"pool": asked.pool}))
        if config.pools == before.config.pools:
            return
        python = await self._python_in_pools(before.owner, before.group, config, before.snapshot, before.python)
        cluster = await self._cluster_state.now()
        self._check_usable(cluster, config)
        old = ",".join(pools_of(before.config, cluster))

        def change(newest: Experiment) -> tuple[Mapping[str, Any], AuditEntry | None]:
            _check_open(newest)  # it may have ended meanwhile
            moved = newest.config.model_copy(update={"pool": config.pool})
            return {"config": moved, "python": python}, audit_entry(who, newest, "move", f"pool {old} -> {config.pool}")

        await asyncio.to_thread(self._store.update_experiment, number, time.time(), change)
        await asyncio.to_thread(self._note, number, config)
        self._changed()

    def _check_usable(self, cluster: ClusterState, config: Config) -> None:
        """Raise Conflict if none of the new pools can start gangs now: a move would only stop the running gangs."""
        problems = self._engines.problems()
        reasons = [_unusable(cluster, pool, problems) for pool in config.pools]
        if all(reasons):
            raise Conflict(f"{'; '.join(reasons)}: it stays where it is")

    def _note(self, number: int, config: Config) -> None:
        """Store a note on each trial that leaves its pool: the old pool, the new pools, and the step reached."""
        for trial in self._store.restless_trials(number):
            key = AttemptId(number, trial.index, trial.attempt)
            before = self._store.attempt(key).pool if trial.attempt else ""
            if before and before not in config.pools:
                step = max(trial.step, checkpoint_step(trial.checkpoint))
                self._store.note(key, f"moved from {before} to {config.pool} at step {step}", time.time())


def _unusable(cluster: ClusterState, pool: str, problems: Mapping[str, str]) -> str:
    """Return why no gang can be started in a pool now; "" if one can. `problems` has the pools' problems by name."""
    if pool in problems:
        return f"pool {pool} cannot be used now: {problems[pool]}"
    if cluster.usable(pool):
        return ""
    names = ", ".join(sorted(node.name for node in cluster.of_pool(pool)))
    return f"all nodes of pool {pool} are drained, suspect or away ({names}; daylight nodes says why)"


def _check_open(experiment: Experiment) -> None:
    number, state = experiment.number, experiment.state
    if state in EXPERIMENT_ENDED:
        again = f"daylight rerun {number} --pool NAME trains it once more there"
        raise Conflict(f"experiment #{number} is {state}: there is nothing to move. {again}")
    if state is ExperimentState.STOPPING:
        raise Conflict(f"experiment #{number} is {state}: there is nothing to move")
