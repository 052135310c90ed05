"""Know which nodes have the remote data of an experiment, from the attempts that have trained there."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

from kernel_backend.errors import DaylightError
from kernel_backend.model.experiment import ScheduledExperiment
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.trial import Attempt
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.base import Store

LOOK_S = 1.0  # between two looks at the attempts
PAST_S = 30 * 86400.0  # age from which an attempt says nothing about what its node has
MOST = 100_000  # attempts that are read at once


class _Input(NamedTuple):
    declared: str  # as the user wrote it
    name: str  # by which the training knows it
    digest: str  # of its address, and of the list of its objects


class DataNodes:
    """Nodes with remote data that a training reads: those on which another training of the same data has begun.

    What they have is not asked for: a node may have removed data since, and then fetches it again. Methods block on
    the store and on snapshots; they may be called in any thread.
    """

    def __init__(self, store: Store, archive: Archive) -> None:
        self._store = store
        self._nodes: dict[tuple[str, str], set[str]] = defaultdict(set)  # names of nodes, by input and pool
        self._looked = 0.0  # time of the last look
        self._lock = Lock()

        @lru_cache(maxsize=10_000)
        def inputs(snapshot: str) -> tuple[_Input, ...]:
            try:
                return _inputs(archive.snapshot(snapshot))
            except (DaylightError, OSError):  # it is gone, or unreadable, which its start will tell
                return ()

        self._inputs_of = inputs

    def of(self, experiment: ScheduledExperiment, pools: Collection[str]) -> frozenset[str]:
        """Return the names of nodes of these pools that have all remote data of an experiment; empty if it has none."""
        inputs = self._inputs(experiment) if pools else ()
        if not inputs:
            return frozenset()
        self._look()
        with self._lock:
            found = [[self._nodes.get((each.digest, pool), set()) for each in inputs] for pool in pools]
            return frozenset(name for each in found for name in set.intersection(*each))

    def note(self, attempt: Attempt) -> str:
        """Return a note on an attempt that begins on nodes that have its data: `on n1 and n2, which have train`.

        "" if it has no remote data, or one of its nodes had not read it before.
        """
        experiment = self._store.experiment(attempt.experiment)
        names = [share.node for share in attempt.actual]
        if not names or not self.of(experiment, (attempt.pool,)).issuperset(names):
            return ""
        data = _listed([each.name for each in self._inputs(experiment)])
        where = _listed(names) if len(names) <= 3 else f"{len(names)} nodes"
        return f"on {where}, which {'has' if len(names) == 1 else 'have'} {data}"

    def _inputs(self, experiment: ScheduledExperiment) -> tuple[_Input, ...]:
        elsewhere = experiment.config.data_at  # of a rerun, which reads something else
        return tuple(each for each in self._inputs_of(experiment.snapshot) if each.declared not in elsewhere)

    def _look(self) -> None:
        """Read which nodes attempts have trained on since the last look."""
        with self._lock:
            now = time.time()
            if now - self._looked < LOOK_S:
                return
            since, self._looked = max(self._looked, now - PAST_S), now
            for snapshot, pool, nodes in self._store.trained_on(since, MOST):
                for each in self._inputs_of(snapshot):
                    self._nodes[each.digest, pool].update(nodes)


def _inputs(snapshot: Snapshot) -> tuple[_Input, ...]:
    return tuple(_Input(each.name, each.into, f"{each.path} {each.digest}") for each in snapshot.data if each.into)


def _listed(names: list[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
