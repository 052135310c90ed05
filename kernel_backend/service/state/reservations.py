"""Store reservations and queue positions, so that all requests keep theirs when the service restarts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kernel_backend.model.cluster.usage import ReservationRecord
from kernel_backend.scheduler.decisions import Start
from kernel_backend.scheduler.requests import RequestKey, Reservation
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.store.base import Store

BRIEF_S = 60.0  # shorter times at the head of a user queue are not stored


class StoredReservations:
    """Access to the stored reservations and queue positions; `keep` writes only those that have changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[RequestKey, ReservationRecord] = {}

    def read(self) -> None:
        """Load all reservation records from the store. Blocks."""
        self._kept = {RequestKey(*record.key): record for record in self._store.reservations()}

    def of(self, key: RequestKey) -> ReservationRecord | None:
        """Return the stored record of the request `key` of a trial or search; None if there is none.

        It has the request's reservation, if any, and its queue position.
        """
        return self._kept.get(key)

    def restore(self, cluster: ClusterState) -> None:
        """Put the stored reservations of queued requests into the cluster state.

        Also restore the times since which requests have been the heads of their queues.
        """
        requests = cluster.queue.requests
        kept = [reservation(record) for key, record in self._kept.items() if key in requests]
        cluster.reservations = tuple(sorted((each for each in kept if each is not None), key=lambda each: each.since))
        for lines in cluster.queue.lines.values():
            for line in lines.values():
                record = self._kept.get(line.first.key)
                since = record.head_since if record is not None else None
                line.since = max(line.since, cluster.at - BRIEF_S) if since is None else since

    async def keep(self, cluster: ClusterState, starting: Mapping[RequestKey, Start]) -> None:
        """Store the reservations and queue positions that have changed since the last call.

        `starting` has the requests whose gangs are being started; their reservations are kept in the store.
        """
        wanted = _reservations(cluster, starting)
        made = [record for key, record in wanted.items() if self._kept.get(key) != record]
        gone = [record for key, record in self._kept.items() if key not in wanted]
        if made or gone:
            await asyncio.to_thread(self._store.save_reservations, made, gone)
            self._kept = wanted


def reservation(record: ReservationRecord) -> Reservation | None:
    """Convert a stored record to a reservation; None if the record holds only a queue position."""
    if record.kept_since is None or record.kind is None:
        return None
    return Reservation(RequestKey(*record.key), record.kind, record.node, record.kept_since, record.kept_priority)


def _reservations(cluster: ClusterState, starting: Mapping[RequestKey, Start]) -> dict[RequestKey, ReservationRecord]:
    fields: defaultdict[RequestKey, dict[str, Any]] = defaultdict(dict)
    for lines in cluster.queue.lines.values():
        for line in lines.values():
            if line.since < cluster.at - BRIEF_S:
                known = fields[line.first.key]  # of a request that waits in several pools, the later time
                known["head_since"] = max(line.since, known.get("head_since", line.since))
    for each in cluster.reservations:
        fields[each.key] |= _kept(each)
    for key, start in starting.items():
        fields[key] |= {"passed": start.passed, **_kept(start.reservation)}
    for run in cluster.runs.values():
        promised = run.passed or any(each is not None for each in (run.reservation, run.committed, run.leaving))
        if promised and run.key.is_gang:  # the hub and the engines report what others hold
            known = {"passed": run.passed, "committed": run.committed, "leaving": run.leaving}
            fields[run.key] |= {**known, **_kept(run.reservation)}
    return {
        key: ReservationRecord(experiment=key.experiment, trial=key.trial, nth=key.nth, **found)
        for key, found in fields.items()
    }


def _kept(each: Reservation | None) -> dict[str, Any]:
    if each is None:
        return {}
    return {"kind": each.kind, "node": each.node, "kept_since": each.since, "kept_priority": each.priority}
