"""Compute the service's metrics for monitoring systems: slots, queues, gangs, outcomes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

from kernel_backend.model.cluster.monitored import Family, StoreCounts
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.pools import PoolStatus
from kernel_backend.model.launch.utilisation import SlotUse, StoredUse, together
from kernel_backend.model.resources import Node
from kernel_backend.model.states import ExperimentState, Outcome
from kernel_backend.scheduler.requests import Allocation
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.verbs.quotas import check_admin
from kernel_backend.service.views.utilisation import LIVE_S
from kernel_backend.store.base import Store

MOST_USERS = 1000  # label values of users; the others are summed, since monitoring systems fail with too many series
MOST_GANGS = 1000
OTHERS = "(others)"


class Monitoring:
    """Reader of the service's metrics for a monitoring system."""

    def __init__(
        self,
        store: Store,
        cluster_state: ClusterStateManager,
        pools: Callable[[], Awaitable[Sequence[PoolStatus]]],
        round_age: Callable[[], float],
    ) -> None:
        """Create the reader; `round_age` returns the seconds since the control loop last completed a round."""
        self._store, self._cluster_state, self._pools, self._round_age = store, cluster_state, pools, round_age

    async def families(self, who: Person) -> list[Family]:
        """Return all metrics with their samples; raises Forbidden unless the user may monitor the service."""
        if not who.monitors:
            check_admin(who, "the numbers of all users are read by admins, and by roles with custom:daylight:monitor")
        pools = await self._pools()
        counts = await asyncio.to_thread(self._store.counts, MOST_GANGS)
        use = await asyncio.to_thread(self._store.latest_use, time.time() - LIVE_S)
        async with self._cluster_state.looking() as cluster:
            found = await asyncio.to_thread(cluster_families, cluster, pools)
        age = Family(
            "daylight_round_age_seconds", "gauge", "Since the last scheduling round", (), [((), self._round_age())]
        )
        return [*found, *store_families(counts), *use_families(use), age]


def cluster_families(cluster: ClusterState, pools: Sequence[PoolStatus]) -> list[Family]:
    """Return the metrics of pools, nodes, slots and queues."""
    names = [pool.name for pool in pools]
    requests, slots, oldest = _queued(cluster)
    runs = list(cluster.runs.values())
    gangs = _count((run.pool, "waiting" if run.waiting else "running") for run in runs if run.key.is_gang)
    nodes = _count((node.pool, _state(node)) for node in cluster.nodes.values())
    return [
        _gauge("pool_up", "Whether a pool can be used", ("pool",), (((p.name,), not p.problem) for p in pools)),
        _gauge("nodes", "Nodes", ("pool", "state"), _by(nodes)),
        _gauge("slots", "Slots of nodes, used or not", ("pool", "state"), _by(_slots(cluster))),
        _gauge("slots_used", "Slots in use", ("pool", "group", "user", "use"), _by(_bounded(_used(runs)))),
        _gauge("gangs", "Gangs with slots, or in their engine's own queue", ("pool", "state"), _by(gangs)),
        _gauge("queued_requests", "Requests that wait for slots", ("pool",), (((p,), requests[p]) for p in names)),
        _gauge("queued_slots", "Slots that they ask for", ("pool",), (((p,), slots[p]) for p in names)),
        _gauge("oldest_request_seconds", "Age of the oldest", ("pool",), (((p,), oldest.get(p, 0.0)) for p in names)),
    ]


def store_families(counts: StoreCounts) -> list[Family]:
    """Return the metrics of experiments, outcomes and running trainings."""
    states: dict[Key, float] = {(state.value,): counts.experiments.get(state.value, 0) for state in ExperimentState}
    outcomes: dict[Key, float] = {(each.value,): counts.outcomes.get(each.value, 0) for each in Outcome}
    labels = ("experiment", "trial")
    training = [((str(each.experiment), str(each.index)), each) for each in counts.training]
    return [
        _gauge("experiments", "Experiments that are not deleted", ("state",), _by(states)),
        Family("daylight_attempts", "counter", "Ended attempts of all time", ("outcome",), list(_by(outcomes))),
        _gauge("trial_step", "Newest reported step", labels, ((key, each.step) for key, each in training)),
        _gauge("trial_epoch", "Newest reported epoch", labels, ((key, each.epoch) for key, each in training)),
        _gauge("trial_attempt", "Number of its attempt", labels, ((key, each.attempt) for key, each in training)),
    ]


def use_families(latest: Sequence[StoredUse]) -> list[Family]:
    """Return the metrics of the use of slots by trial, for at most `MOST_GANGS` trials.

    A value that cannot be measured has no sample.
    """
    by_trial: dict[Key, list[SlotUse]] = {}
    for each in latest:
        by_trial.setdefault((str(each.experiment), str(each.trial)), []).append(each.slot.use)
    trials = [(key, together(uses)) for key, uses in [*by_trial.items()][:MOST_GANGS]]
    labels = ("experiment", "trial")
    return [
        _gauge(f"trial_{name}", help, labels, ((key, value) for key, use in trials if (value := read(use)) is not None))
        for name, help, read in _USES
    ]


Key = tuple[str, ...]
_USES: Sequence[tuple[str, str, Callable[[SlotUse], float | None]]] = (
    ("gpu_use", "Fraction of the time in which its GPUs computed, their mean", lambda use: use.gpu),
    ("cpu_cores", "Cores in use by its processes", lambda use: use.cpu),
    ("memory_bytes", "Main memory of its processes", lambda use: use.memory),
    ("gpu_memory_bytes", "Memory in use on its GPUs, by any process", lambda use: use.device_memory),
    ("gpu_temperature_celsius", "Temperature of its hottest GPU", lambda use: use.temperature),
    ("power_watts", "Power of its GPUs, and its share of the processors' power", lambda use: use.watts),
)


def _gauge(name: str, help: str, labels: Key, samples: Iterable[tuple[Key, float]]) -> Family:
    return Family(f"daylight_{name}", "gauge", help, labels, list(samples))


def _by(counts: Mapping[Key, float]) -> Iterator[tuple[Key, float]]:
    return iter(sorted(counts.items()))


def _count(keys: Iterable[Key]) -> Counter[Key]:
    return Counter(keys)


def _state(node: Node) -> str:
    if not node.healthy:
        return "down"
    return "drained" if node.drained else "suspect" if node.suspect else "ready"


def _slots(cluster: ClusterState) -> Counter[Key]:
    found: Counter[Key] = Counter()
    for node in cluster.nodes.values():
        found[node.pool, _state(node)] += node.slots
    return found


def _queued(cluster: ClusterState) -> tuple[Counter[str], Counter[str], dict[str, float]]:
    """Return three mappings by pool: the number of requests, of requested slots, and the longest wait in seconds."""
    requests: Counter[str] = Counter()
    slots: Counter[str] = Counter()
    oldest: dict[str, float] = {}
    for request in cluster.queue:
        requests[request.pool] += 1
        slots[request.pool] += request.slots
        oldest[request.pool] = max(oldest.get(request.pool, 0.0), cluster.at - request.queued_at)
    return requests, slots, oldest


def _used(runs: Iterable[Allocation]) -> Counter[Key]:
    found: Counter[Key] = Counter()
    for run in runs:
        if not run.waiting:
            found[run.pool, run.group, run.owner, _purpose(run)] += run.slots
    return found


def _purpose(run: Allocation) -> str:
    return "training" if run.key.is_gang else "notebook" if run.key.server else "other"


def _bounded(used: Counter[Key]) -> Counter[Key]:
    """Return the numbers of slots by pool, group, user and purpose, for the `MOST_USERS` users with the most slots.

    The slots of all other users are summed up with `OTHERS` as user and group: so the number of time series stays
    limited.
    """
    by_user: Counter[str] = Counter()
    for (_, _, user, _), slots in used.items():
        by_user[user] += slots
    named = {user for user, _ in by_user.most_common(MOST_USERS)}
    found: Counter[Key] = Counter()
    for (pool, group, user, use), slots in used.items():
        found[(pool, group, user, use) if user in named else (pool, OTHERS, OTHERS, use)] += slots
    return found
