"""Explain why a request waits, in a sentence for the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile

from kernel_backend.model.cluster.people import Person
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.views.overview import Wait
from kernel_backend.scheduler.explain.feasibility import impossible
from kernel_backend.scheduler.explain.forecast import FAR, forecast
from kernel_backend.scheduler.explain.redaction import knows_quota, named, sees, subject
from kernel_backend.scheduler.order import in_order, reserved_for
from kernel_backend.scheduler.placement import feasible, largest, largest_gang
from kernel_backend.scheduler.quotas import Ledger
from kernel_backend.scheduler.requests import SlotRequest
from kernel_backend.scheduler.run_lengths import Lengths
from kernel_backend.scheduler.state import ClusterState, UsageByName

UNKNOWN: Mapping[str, Lengths] = {}


def explain(
    picture: ClusterState, ask: SlotRequest, lengths: Mapping[str, Lengths] = UNKNOWN, reader: Person | None = None
) -> Wait:
    """Return the queue position of `ask` (1 is the head), the reason it waits, and the expected wait.

    `lengths` are those of past runs. `reader` learns of other users' requests only what they may see; without a
    reader the text is for the owner, who may see all. Requests ahead are not counted for a request that is far back:
    its position is that of the first of those.
    """
    ask = picture.queue.asks.get(ask.key, ask)
    never = impossible(picture, ask, reader)
    if never is not None:
        return Wait(reason=never.reason, place=1)
    if picture.queue.stands(ask):
        before = takewhile(lambda other: other.key != ask.key, in_order(picture, ask.pool))
        ahead = list(islice(before, FAR))
    else:
        others = (line.before(ask) for line in picture.queue.lines.get(ask.pool, {}).values())
        return Wait(reason=_no_turn(picture, ask) + _left_out(picture, ask), place=1 + sum(others))
    return explain_in_turn(picture, ask, ahead, lengths, reader)


def explain_in_turn(
    picture: ClusterState,
    ask: SlotRequest,
    ahead: Sequence[SlotRequest],
    lengths: Mapping[str, Lengths] = UNKNOWN,
    reader: Person | None = None,
) -> Wait:
    """Return the same for a request in the fair order, when the caller already has all those ahead of it."""
    expected = forecast(picture, ahead, ask, lengths)
    reason = _reason(picture, ask, ahead, reader) + _left_out(picture, ask)
    if expected is None or expected.likely <= 0:
        return Wait(reason=reason, place=1 + len(ahead))
    earliest, estimate, latest = expected
    return Wait(reason=reason, place=1 + len(ahead), estimate=estimate, earliest=earliest, latest=latest)


def _no_turn(picture: ClusterState, ask: SlotRequest) -> str:
    if ask.preparing:
        return ask.preparing
    return f"tried again {ask.rest:.0f} s after the last attempt: it made no progress, nor did the one before"


def _reason(picture: ClusterState, ask: SlotRequest, ahead: Sequence[SlotRequest], reader: Person | None) -> str:
    if ask.trouble:
        return f"cannot be started just now, and is tried again: {ask.trouble}"
    nodes = [node for node in picture.of_pool(ask.pool) if node.name not in ask.excluded]
    total = largest_gang(nodes)
    usable = [node for node in nodes if node.healthy and not node.drained]
    counts = [(node.kind, len(picture.free[node.name])) for node in usable]
    free = largest(counts)
    where = "in queue" if ask.pool == LOCAL else f"in pool {ask.pool}"
    turn = f"{_ordinal(len(ahead) + 1)} {where}" if ahead else f"next {where}"
    if len(ahead) == FAR:
        turn = f"behind the first {FAR:,} {where}"
    limit = _limit(picture, ask, reader)
    if limit:
        return f"{turn}; {limit}"
    away = sum(node.slots for node in nodes) - sum(node.slots for node in usable)
    room = largest(counts, ask.one_node)
    if room >= ask.slots:
        rival = _rival(picture, ask)
        if rival is not None:
            return f"{turn}; what its limit leaves is kept for {named(rival, reader)}"
        if ahead:
            return f"{turn}; {_kept(picture, ahead, reader)}"
        return f"{_slots(ask.slots)} free, starting"
    going = sum(run.slots for run in picture.runs.values() if run.leaving is not None and run.pool == ask.pool)
    more = (f"; {_slots(going)} on their way" if going else "") + (f"; {_slots(away)} drained or away" if away else "")
    if ask.one_node and ask.slots > 1:
        return f"{turn}; no node has {ask.slots} free{more}"
    if ahead:
        return f"{turn}; {total - free} of {_slots(total)} in use{more}"
    return f"{turn}; {_slots(ask.slots)} asked, {free} of {total} free{more}"


def _limit(picture: ClusterState, ask: SlotRequest, reader: Person | None) -> str:
    """Return whose limit or slot-hours the request would exceed; empty if none."""
    ledger = Ledger(picture)
    kind = ledger.stopped_by(ask)
    if kind is None:
        return ""
    name = ask.owner if kind == "user" else ask.group
    accounts: UsageByName = picture.users if kind == "user" else picture.groups
    quota, use = accounts.quota(name), accounts.use(name, picture.at)
    who, known = subject(kind, ask, reader), knows_quota(kind, ask, reader)
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


def _kept(picture: ClusterState, ahead: Sequence[SlotRequest], reader: Person | None) -> str:
    """Return for which account the free slots are reserved that the request does not get."""
    ledger = Ledger(picture)
    first = next((other for other in ahead if ledger.stopped_by(other) is None), ahead[0])
    if not ledger.guaranteed(first):
        return f"slots are kept for {named(first, reader)}, which is next"
    theirs = first.owner if sees(first, reader) else "another"
    # All may see of a group that it waits. But a user without a group is a group of one, which has their name.
    if picture.groups.quota(first.group).guarantee and not (first.group == first.owner and theirs == "another"):
        theirs = f"group {first.group}"
    return f"slots are kept for the guarantee of {theirs}"


def _rival(picture: ClusterState, ask: SlotRequest) -> SlotRequest | None:
    """Return the request that the rest of a limit is reserved for, as `decide` reserves it."""
    ledger = Ledger(picture)
    firsts = [line.first for lines in picture.queue.lines.values() for line in lines.values()]
    for other in filter(ledger.guaranteed, firsts):
        if other.key != ask.key:
            ledger.promise(other)
            if ledger.stopped_by(ask):
                return other
    for other, firm in _reserved(picture):
        if other.key == ask.key:
            return None
        if ledger.stopped_by(other) is None and (firm or other.pool != ask.pool):
            ledger.promise(other)
        elif ledger.stopped_by(other) is not None and firm:
            ledger.hold_back(other)
        if ledger.stopped_by(ask):
            return other
    return None


def _reserved(picture: ClusterState) -> Iterator[tuple[SlotRequest, bool]]:
    """Yield requests with a reservation that could be placed now, and whether no request may pass them."""
    rules, since = picture.rules, {each.key: each.since for each, _ in picture.reserved()}
    for pool in sorted(picture.pools):
        nodes = picture.usable(pool)
        for ask in reserved_for(picture, pool):
            starves = picture.queue.starves(ask, picture.at - rules.starving)
            firm = starves or since.get(ask.key, picture.at) <= picture.at - rules.patience
            if feasible(nodes, ask.slots, ask.excluded, ask.one_node):
                yield ask, firm


def _left_out(picture: ClusterState, ask: SlotRequest) -> str:
    there = {node.name for node in picture.of_pool(ask.pool)}
    return "".join(f"; without {name}" for name in sorted(there & ask.excluded))


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
