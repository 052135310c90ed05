"""Build slot requests for the scheduler from the records of trials and searches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from kernel_backend.lifecycle.backoff import rest
from kernel_backend.model.experiment import Config, Experiment, ScheduledExperiment
from kernel_backend.model.resources import LOCAL, Node
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import ScheduledTrial
from kernel_backend.scheduler.elastic import larger_sizes
from kernel_backend.scheduler.requests import ANY_TRIAL, SlotRequest
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.checkpoint_copies import CheckpointCopies
from kernel_backend.service.environments import Preparation
from kernel_backend.service.isolation import RETRY
from kernel_backend.service.search.runner import Searches
from kernel_backend.store.base import Store


class StartError(NamedTuple):
    """Error in starting a trial, with the time of the next try; until then the trial's request delays no other."""

    text: str
    failures: int  # number of failures in a row
    again: float  # time of the next try, by time.monotonic()

    @classmethod
    def after(cls, before: StartError | None, text: str) -> StartError:
        """Return the record of a new error with message `text`, after the previous error `before` of the same trial.

        The more errors in a row, the later is the next try.
        """
        failures = 1 + (before.failures if before is not None else 0)
        return cls(text, failures, time.monotonic() + RETRY.pause(failures))

    @property
    def reason(self) -> str:
        """Return why the trial waits, as a text for users; "" once the start may be tried again."""
        return f"cannot be started just now, and is tried again: {self.text}" if time.monotonic() < self.again else ""


class RequestBuilder:
    """Builder of slot requests, by which the scheduler queues trials and searches for slots.

    Methods may block on the store, but never on users' files; call them in a thread.
    """

    def __init__(
        self,
        store: Store,
        searches: Searches,
        preparation: Preparation,
        checkpoint_copies: CheckpointCopies,
        places: Callable[[str], bool] = lambda _: True,
        load_since: Callable[[str, float], bool] = lambda pool, since: True,
        data_nodes: Callable[[ScheduledExperiment, Collection[str]], frozenset[str]] = lambda _, pools: frozenset(),
    ) -> None:
        """Create a builder.

        `places` returns whether Daylight itself chooses the nodes of a pool, rather than an external scheduler such as
        Slurm. `load_since` returns whether the slots that others use in a pool with such a scheduler were read after a
        given time, in seconds since the epoch. `data_nodes` returns the nodes of pools that have an experiment's data.
        """
        self._data_nodes = data_nodes
        self._store, self._searches, self._places, self._load_since = store, searches, places, load_since
        self._preparation, self._checkpoint_copies = preparation, checkpoint_copies
        self.start_errors: dict[tuple[int, int], StartError] = {}  # last start error of each experiment and trial
        self._granted: dict[int, float] = {}  # time at which each search last got a gang

    @property
    def unsettled(self) -> bool:
        """Return whether, since the last `settle`, lookups in users' files were started that have no result yet."""
        return self._preparation.lookups.unsettled or self._checkpoint_copies.lookups.unsettled

    async def settle(self) -> None:
        """Wait a short time for lookups in users' files that have no result yet."""
        await asyncio.gather(self._preparation.lookups.settle(), self._checkpoint_copies.lookups.settle())

    def for_trial(self, experiment: ScheduledExperiment, trial: ScheduledTrial, pools: Sequence[str]) -> SlotRequest:
        """Return the slot request of a queued trial that may start in any of `pools`."""
        preparing = self._preparation.wait(experiment)
        if trial.begins_from is not None and not preparing:
            or_newer = experiment.config.search is not None
            preparing = self._checkpoint_copies.wait(experiment.owner, trial, trial.begins_from, or_newer=or_newer)
        several = trial.attempt > 0 and len(pools) > 1
        # There is no backoff before the second attempt.
        known = trial.attempt >= 2 or several
        attempts = self._store.attempts(trial.experiment, trial.index) if known else []
        request = plain_request(experiment, trial, self._preferred(pools, attempts[-1].pool if attempts else ""))
        request = self._near_data(request, experiment, pools)
        if preparing:
            request = replace(request, preparing=preparing)
        error = self.start_errors.get((trial.experiment, trial.index))
        if error is not None:
            request = replace(request, error=error.text, preparing=preparing or error.reason)
        if request.larger and not all(map(self._places, pools)):
            request = self._beside_others(request, trial)
        if trial.attempt < 2:
            return request
        return replace(request, failed_at=attempts[-1].ended_at or 0.0, rest=rest(trial, attempts))

    def _with_others(self, pools: Sequence[str]) -> bool:
        """Return whether an external scheduler, such as Slurm, chooses the nodes in any of these pools.

        True also for `()`, the default pool, which this object does not know.
        """
        return not pools or not all(map(self._places, pools))

    def _beside_others(self, request: SlotRequest, trial: ScheduledTrial) -> SlotRequest:
        """Return an elastic trial's request, changed for a pool where an external scheduler also serves jobs of others.

        The request waits until it is known which slots the others have left there. If the trial's last attempt waited
        in vain for its slots, the next one requests only its least number.
        """
        last = self._store.attempts(trial.experiment, trial.index)[-1:]
        since = max([trial.queued_at, *(each.ended_at or 0.0 for each in last)])
        sites = [each.pool for each in request.in_each_pool if not self._places(each.pool)]
        old = [pool for pool in sites if not self._load_since(pool, since)]  # all are asked for
        if old and not request.preparing:
            request = replace(request, preparing=f"what others use in pool {old[0]} is being looked up")
        if any(each.granted_at is None and each.outcome is Outcome.RELEASED for each in last):
            request = replace(request, larger=())
        return request

    def _preferred(self, pools: Sequence[str], present: str = "") -> tuple[str, ...]:
        """Return a request's pools in order of preference.

        Pools in which Daylight chooses the nodes come first, since a gang may wait for an unknown time in the queue of
        an external scheduler. Among pools of one kind, the pool `present` is first, where the trial's last attempt ran.
        """
        return tuple(sorted(pools, key=lambda pool: (not self._places(pool), pool != present)))

    def for_search(
        self, experiment: Experiment, in_hand: int, nodes: Iterable[Node], pools: Sequence[str]
    ) -> list[SlotRequest]:
        """Return a slot request for each further gang that a search can use now; it has `in_hand` gangs already.

        The searcher chooses a trial only when a gang is granted, so that promotions are decided on the newest results.
        A search whose gangs fit on no node still makes one request, so that users see the reason.
        """
        search, slots = experiment.config.search, experiment.config.slots
        free = max(1, sum(node.slots for node in nodes if node.pool in pools) // slots)
        if search is not None and search.parallel is not None:
            free = min(free, search.parallel - in_hand)
        wanted = min(free, self._searches.wants(experiment)) if free > 0 else 0
        error = self.start_errors.get((experiment.number, ANY_TRIAL))
        first = replace(
            _request(
                experiment,
                ANY_TRIAL,
                self._granted.get(experiment.number, experiment.created_at),
                self._preferred(pools),
            ),
            error=error.text if error is not None else "",
            preparing=self._preparation.wait(experiment) or (error.reason if error is not None else ""),
        )
        first = self._near_data(first, experiment, pools)
        return [first, *(replace(first, nth=nth) for nth in range(1, wanted))] if wanted else []

    def _near_data(self, request: SlotRequest, experiment: ScheduledExperiment, pools: Sequence[str]) -> SlotRequest:
        """Return a request that prefers nodes with its data, in pools in which Daylight chooses the nodes.

        The local pool is one machine: to look for its data would cost a read of each snapshot, and change nothing.
        """
        found = self._data_nodes(experiment, [pool for pool in pools if pool != LOCAL and self._places(pool)])
        return replace(request, preferred=found) if found else request

    def got(self, experiment: int, at: float) -> None:
        """Record when a search was last granted a gang; its next request counts as queued since then."""
        self._granted[experiment] = max(at, self._granted.get(experiment, at))

    def may_change(self, experiment: ScheduledExperiment, trial: ScheduledTrial) -> bool:
        """Return whether a trial's request may change although nothing in the store changes.

        This is so if the trial waits for an environment or a copy of a checkpoint, if its start has failed, or if its
        number of slots depends on what others use in the pool.
        """
        return (
            experiment.config.env == "locked"
            or (trial.begins_from is not None and trial.attempt == 0)
            or (trial.experiment, trial.index) in self.start_errors
            or (experiment.config.least_slots is not None and self._with_others(experiment.config.pools))
        )


def plain_request(experiment: ScheduledExperiment, trial: ScheduledTrial, pools: Sequence[str]) -> SlotRequest:
    """Return a trial's request as if the trial could start now, without waits for preparation or after errors."""
    return _request(experiment, trial.index, trial.queued_at, pools, trial.excluded)


def draft_request(config: Config, owner: str, group: str, pools: Sequence[str]) -> SlotRequest:
    """Return the slot request that a submission would make; it has no experiment number yet."""
    slots, larger = _sizes(config)
    return SlotRequest(
        0,
        1,
        slots,
        0.0,
        owner=owner,
        group=group,
        pool=pools[0],
        pools=_several(pools),
        one_node=config.one_node,
        larger=larger,
    )


def _several(pools: Sequence[str]) -> tuple[str, ...]:
    return tuple(pools) if len(pools) > 1 else ()


def _request(
    experiment: ScheduledExperiment,
    trial: int,
    queued_at: float,
    pools: Sequence[str],
    excluded: Collection[str] = frozenset(),
) -> SlotRequest:
    config = experiment.config
    slots, larger = _sizes(config)
    return SlotRequest(
        experiment.number,
        trial,
        slots,
        queued_at,
        frozenset(excluded),
        larger=larger,
        owner=experiment.owner,
        group=experiment.group,
        pool=pools[0],
        pools=_several(pools),
        priority=config.priority if experiment.priority is None else experiment.priority,
        by_admin=experiment.priority is not None,
        one_node=config.one_node,
        preemptible=config.preemptible,
        max_time=config.max_time,
    )


def elastic_request(experiment: ScheduledExperiment, trial: ScheduledTrial, pool: str) -> SlotRequest | None:
    """Return the slot request with which an elastic trial is queued after its gang has exited.

    None for a trial that is not elastic (whose number of slots is fixed).
    """
    return None if experiment.config.least_slots is None else plain_request(experiment, trial, (pool,))


def _sizes(config: Config) -> tuple[int, Sequence[int]]:
    """Return the least number of slots for a gang, and the larger numbers with which it may run.

    There are no larger numbers unless the training is elastic.
    """
    if config.least_slots is None:
        return config.slots, ()
    return config.least_slots, larger_sizes(config.least_slots, config.slots, config.logical_workers)


def pools_of(config: Config, cluster: ClusterState) -> tuple[str, ...]:
    """Return the pools in which an experiment requests slots, in the user's order; by default the default pool."""
    return config.pools or (cluster.usual_pool,)
