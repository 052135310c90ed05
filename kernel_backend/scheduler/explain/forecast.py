"""Forecast when a request will start, from the expected ends of running gangs and the requests ahead of it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kernel_backend.scheduler.requests import SlotRequest
from kernel_backend.scheduler.run_lengths import Lengths
from kernel_backend.scheduler.state import ClusterState

FAR = 1000  # requests with as many ahead of them get no forecast


class Forecast(NamedTuple):
    """Seconds until a request is expected to start: a likely value, and bounds that hold in half of all cases."""

    low: float
    likely: float
    high: float


def forecast(
    cluster: ClusterState, ahead: Iterable[SlotRequest], request: SlotRequest, lengths: Mapping[str, Lengths]
) -> Forecast | None:
    """Return in how many seconds a request will start if all requests in `ahead` start before it, in order.

    `lengths` has quartiles of past run lengths by owner; without enough of them, None is returned. Slots are counted
    per pool, regardless of nodes.
    """
    before = list(ahead)
    if len(before) >= FAR:
        return None
    found = [_start(cluster, [*before, request], lengths, at) for at in range(3)]
    if any(each is None for each in found):
        return None
    low, likely, high = sorted(each for each in found if each is not None)
    return Forecast(low, likely, high)


def _start(
    cluster: ClusterState, requests: list[SlotRequest], lengths: Mapping[str, Lengths], quartile: int
) -> float | None:
    """Return in how many seconds the last of `requests` starts; None if unknown.

    The requests start in order, each as soon as enough slots are free. Runs are assumed to be as long as quartile
    `quartile` of their owner's past runs.
    """
    pool = requests[-1].pool
    free = sum(len(cluster.free[node.name]) for node in cluster.usable(pool))
    ends: list[tuple[float, int]] = []
    for run in cluster.runs.values():
        if run.pool == pool:
            ended = run.owner in lengths and run.key.is_gang  # nobody can predict the end of a notebook server
            length = lengths[run.owner][quartile] if ended else None
            end = _sooner(run.ends, None if length is None else run.since + length)
            if run.leaving is not None:
                end = _sooner(end, run.leaving + cluster.rules.grace)
            if end is not None:
                heapq.heappush(ends, (max(cluster.at, end), run.freed))
    now = cluster.at
    for request in requests:
        while free < request.slots:
            if not ends:
                return None
            now, slots = heapq.heappop(ends)
            free += slots
        free -= request.slots
        length = _sooner(request.max_time, lengths[request.owner][quartile] if request.owner in lengths else None)
        if length is not None:
            heapq.heappush(ends, (now + length, request.slots))
    return now - cluster.at


def _sooner(one: float | None, other: float | None) -> float | None:
    known = [each for each in (one, other) if each is not None]
    return min(known, default=None)
