"""Explain why a request waits, in a sentence for the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile

from kernel_backend.model.cluster.people import Person
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.views.overview import Wait
from kernel_backend.scheduler.explain.feasibility import impossible_in_pool
from kernel_backend.scheduler.explain.forecast import FAR, forecast
from kernel_backend.scheduler.explain.redaction import knows_quota, named, sees, subject
from kernel_backend.scheduler.order import in_order, reserved_for
from kernel_backend.scheduler.placement import feasible, largest, largest_gang
from kernel_backend.scheduler.quotas import Ledger, borrowed_slots
from kernel_backend.scheduler.requests import RequestKey, SlotRequest
from kernel_backend.scheduler.run_lengths import Lengths
from kernel_backend.scheduler.state import ClusterState, UsageByName

UNKNOWN: Mapping[str, Lengths] = {}


def explain(
    cluster: ClusterState, request: SlotRequest, lengths: Mapping[str, Lengths] = UNKNOWN, reader: Person | None = None
) -> Wait:
    """Return why a request waits, its queue position (1 is the head), and the expected wait.

    `lengths` has quartiles of past run lengths by owner. The text hides details of other users' requests that `reader`
    may not see; without a reader it is meant for the request's owner. At most `FAR` requests ahead of it are counted.
    For a request that waits in several pools, the text has the reasons in all of them, with the best position and
    estimate.
    """
    request = cluster.queue.requests.get(request.key, request)
    waits = [_in_pool(cluster, each, lengths, reader) for each in request.in_each_pool]
    if len(waits) == 1 or request.preparing:
        return waits[0]
    told = (f"{pool}: {wait.reason.removesuffix('.')}" for pool, wait in zip(request.pools, waits, strict=True))
    soonest = min(waits, key=lambda wait: (wait.estimate is None, wait.estimate or 0.0, wait.place))
    place, starts = min(wait.place for wait in waits), any(wait.starts for wait in waits)
    return soonest.model_copy(update={"reason": "; ".join(told), "place": place, "starts": starts})


def _in_pool(
    cluster: ClusterState, request: SlotRequest, lengths: Mapping[str, Lengths], reader: Person | None
) -> Wait:
    never = impossible_in_pool(cluster, request, reader)
    if never is not None:
        return Wait(reason=never.reason, place=1)
    if cluster.queue.stands(request):
        before = takewhile(lambda other: other.key != request.key, in_order(cluster, request.pool))
        ahead = list(islice(before, FAR))
    else:
        others = (line.before(request) for line in cluster.queue.lines.get(request.pool, {}).values())
        return Wait(reason=_not_next(cluster, request) + _left_out(cluster, request), place=1 + sum(others))
    return explain_in_order(cluster, request, ahead, lengths, reader)


def explain_in_order(
    cluster: ClusterState,
    request: SlotRequest,
    ahead: Sequence[SlotRequest],
    lengths: Mapping[str, Lengths] = UNKNOWN,
    reader: Person | None = None,
) -> Wait:
    """Return why a request waits, like `explain`, given the requests `ahead` of it in scheduling order."""
    expected = forecast(cluster, ahead, request, lengths)
    reason = _reason(cluster, request, ahead, reader)
    wait = Wait(
        reason=reason + _left_out(cluster, request), place=1 + len(ahead), starts=reason == _starting_text(request)
    )
    if expected is None or expected.likely <= 0:
        return wait
    earliest, estimate, latest = expected
    return wait.model_copy(update={"estimate": estimate, "earliest": earliest, "latest": latest})


def _not_next(cluster: ClusterState, request: SlotRequest) -> str:
    if request.preparing:
        return request.preparing
    return f"tried again {request.rest:.0f} s after the last attempt: it made no progress, nor did the one before"


def _reason(cluster: ClusterState, request: SlotRequest, ahead: Sequence[SlotRequest], reader: Person | None) -> str:
    if request.error:
        return f"cannot be started just now, and is tried again: {request.error}"
    nodes = [node for node in cluster.of_pool(request.pool) if node.name not in request.excluded]
    total = largest_gang(nodes)
    usable = [node for node in nodes if node.usable]
    counts = [(node.kind, len(cluster.free[node.name])) for node in usable]
    free = largest(counts)
    where = "in queue" if request.pool == LOCAL or request.pools else f"in pool {request.pool}"
    position = f"{ordinal(len(ahead) + 1)} {where}" if ahead else f"next {where}"
    if len(ahead) == FAR:
        position = f"behind the first {FAR:,} {where}"
    limit = _limit(cluster, request, reader)
    if limit:
        return f"{position}; {limit}"
    if request.pool in cluster.closed_pools:
        return f"{position}; {cluster.closed_pools[request.pool]}"
    away = sum(node.slots for node in nodes) - sum(node.slots for node in usable)
    capacity = largest(counts, request.one_node)
    if capacity >= request.slots:
        rival = _rival(cluster, request)
        if rival is not None:
            return f"{position}; what its limit leaves is reserved for {named(rival, reader)}"
        if ahead:
            return f"{position}; {_kept(cluster, ahead, reader)}"
        return _starting_text(request)
    going = sum(run.freed for run in cluster.runs.values() if run.leaving is not None and run.pool == request.pool)
    why = "drained, suspect or away" if any(node.suspect for node in nodes) else "drained or away"
    limit, whose = cluster.limits_of_pools.get(request.pool, ""), "its" if going == 1 else "their"
    more = (f"; {_slots(going)} on {whose} way" if going else "") + (f"; {_slots(away)} {why}" if away else "")
    more += f"; {limit}" if limit else ""
    more += _taken_back(cluster, request, reader) if not going else ""
    if request.one_node and request.slots > 1:
        return f"{position}; no node has {request.slots} free{more}"
    if ahead:
        return f"{position}; {total - free} of {_slots(total)} in use{more}"
    device = next((f" ({node.device})" for node in nodes if node.device), "")
    return f"{position}; {_requested(request)}, {free} of {total} free{device}{more}"


def _taken_back(cluster: ClusterState, request: SlotRequest, reader: Person | None) -> str:
    """Return a text that says when a guarantee of the request's owner or group frees slots for it; "" without one."""
    borrowed = borrowed_slots(cluster)
    lent = any(run.pool == request.pool and run.key in borrowed and run.key.is_gang for run in cluster.runs.values())
    if not lent or not Ledger(cluster).guaranteed(request):
        return ""
    who = subject("group" if cluster.groups.quota(request.group).guarantee else "user", request, reader)
    whose = "your guarantee" if who == "you" else f"the guarantee of {who}"
    return f"; {whose} takes slots back from gangs of others that have trained for {cluster.rules.min_run / 60:g} min"


def _limit(cluster: ClusterState, request: SlotRequest, reader: Person | None) -> str:
    """Return a text on the limit or slot-hours of a user or group that a request would exceed; "" if there is none.

    It hides numbers that `reader` may not see.
    """
    ledger = Ledger(cluster)
    kind = ledger.stopped_by(request)
    if kind is None:
        return ""
    name = request.owner if kind == "user" else request.group
    accounts: UsageByName = cluster.users if kind == "user" else cluster.groups
    quota, use = accounts.quota(name), accounts.use(name, cluster.at)
    who, known = subject(kind, request, reader), knows_quota(kind, request, reader)
    if quota.slot_hours is not None and ledger.spent(kind, name):
        if not known:
            return f"{who} has used up the slot-hours"
        used, days = (use.window or 0.0) / 3600, quota.slot_hours.window / 86400
        have = "have" if who == "you" else "has"
        return f"{who} {have} used {used:.0f} of {quota.slot_hours.hours:g} slot-hours in {days:g} days"
    limit = f"limit of {quota.limit}" if known else "limit"
    whose = f"your {limit}" if who == "you" else f"{who}'s {limit}" if kind == "user" else f"the {limit} of {who}"
    if use.held >= (quota.limit or 0):
        return f"{whose} is in use"
    return f"{whose} leaves {(quota.limit or 0) - use.held}" if known else f"{whose} leaves too few"


def _kept(cluster: ClusterState, ahead: Sequence[SlotRequest], reader: Person | None) -> str:
    """Return a text that says for which earlier request, or for whose guarantee, the free slots are reserved.

    `ahead` has the requests ahead of the explained one, the first in order first.
    """
    ledger = Ledger(cluster)
    first = next((other for other in ahead if ledger.stopped_by(other) is None), ahead[0])
    if not ledger.guaranteed(first):
        return f"slots are reserved for {named(first, reader)}, which is next"
    theirs = first.owner if sees(first, reader) else "another"
    # The name of a waiting group is no secret, but the group of a user without groups has the user's name.
    if cluster.groups.quota(first.group).guarantee and not (first.group == first.owner and theirs == "another"):
        theirs = f"group {first.group}"
    return f"slots are reserved for the guarantee of {theirs}"


def _rival(cluster: ClusterState, request: SlotRequest) -> SlotRequest | None:
    """Return the other request because of which `request` would exceed its user's or group's limit; None if none.

    That is a request within a guarantee, or one with a reservation, for which a part of the limit is held back.
    """
    ledger = Ledger(cluster)
    heads = (line.first for lines in cluster.queue.lines.values() for line in lines.values())
    firsts = {head.key: head for head in heads}  # one that waits in several pools counts once
    for other in filter(ledger.guaranteed, firsts.values()):
        if other.key != request.key:
            ledger.commit(other)
            if ledger.stopped_by(request):
                return other
    for other, firm in _reserved(cluster):
        if other.key == request.key:
            return None
        if ledger.stopped_by(other) is None and (firm or other.pool != request.pool):
            ledger.commit(other)
        elif ledger.stopped_by(other) is not None and firm:
            ledger.hold_back(other)
        if ledger.stopped_by(request):
            return other
    return None


def _reserved(cluster: ClusterState) -> Iterator[tuple[SlotRequest, bool]]:
    """Yield (request, firm) for each request for which `decide` reserves slots.

    `firm` is True if other requests may use the reserved slots only if they end in time.
    """
    rules, since = cluster.rules, {each.key: each.since for each, _ in cluster.reserved()}
    told: set[RequestKey] = set()
    for pool in sorted(cluster.pools):
        nodes = cluster.usable(pool)
        for request in reserved_for(cluster, pool):
            if request.key in told:  # it waits in several pools
                continue
            starves = cluster.queue.starves(request, cluster.at - rules.starving)
            firm = starves or since.get(request.key, cluster.at) <= cluster.at - rules.patience
            if feasible(nodes, request.slots, request.excluded, request.one_node):
                told.add(request.key)
                yield request, firm


def _left_out(cluster: ClusterState, request: SlotRequest) -> str:
    there = {node.name for node in cluster.of_pool(request.pool)}
    return "".join(f"; without {name}" for name in sorted(there & request.excluded))


def _starting_text(request: SlotRequest) -> str:
    return f"{_slots(request.slots)} free, starting"


def _requested(request: SlotRequest) -> str:
    if request.larger:
        return f"{request.slots} to {request.larger[-1]} slots requested"
    return f"{_slots(request.slots)} requested"


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"


def ordinal(number: int) -> str:
    """Return a number as `1st`, `2nd`, `3rd`, `4th`, ..."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
