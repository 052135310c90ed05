"""Why an ask waits, in the words a person reads beside the chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, takewhile

from kernel_backend.model.overview import Wait
from kernel_backend.model.resources import LOCAL
from kernel_backend.scheduler.asks import Ask, Key
from kernel_backend.scheduler.forecast import FAR, Lengths, forecast
from kernel_backend.scheduler.order import in_order
from kernel_backend.scheduler.picture import Accounts, Picture
from kernel_backend.scheduler.placement import largest_gang
from kernel_backend.scheduler.possible import impossible
from kernel_backend.scheduler.quotas import Ledger

UNKNOWN: Mapping[str, Lengths] = {}


def explain(picture: Picture, ask: Ask, lengths: Mapping[str, Lengths] = UNKNOWN) -> Wait:
    """The place of `ask` in the queue (1 is its head), what it waits for, and for how long (`lengths` of past runs).

    Nobody counts those ahead of an ask that is far back: its place is the first of those that are.
    """
    ask = picture.queue.asks.get(ask.key, ask)
    never = impossible(picture, ask)
    if never is not None:
        return Wait(reason=never.reason, place=1)
    if picture.queue.stands(ask):
        before = takewhile(lambda other: other.key != ask.key, in_order(picture, ask.pool))
        ahead = list(islice(before, FAR))
    else:
        others = (line.before(ask) for line in picture.queue.lines.get(ask.pool, {}).values())
        return Wait(reason=_no_turn(picture, ask) + _left_out(picture, ask), place=1 + sum(others))
    return explain_in_turn(picture, ask, ahead, lengths)


def explain_in_turn(picture: Picture, ask: Ask, ahead: Sequence[Ask], lengths: Mapping[str, Lengths] = UNKNOWN) -> Wait:
    """The same of an ask that has a turn, by whoever knows all those ahead of it already."""
    expected = forecast(picture, ahead, ask, lengths)
    reason = _reason(picture, ask, ahead) + _left_out(picture, ask)
    if expected is None or expected.likely <= 0:
        return Wait(reason=reason, place=1 + len(ahead))
    earliest, estimate, latest = expected
    return Wait(reason=reason, place=1 + len(ahead), estimate=estimate, earliest=earliest, latest=latest)


def _no_turn(picture: Picture, ask: Ask) -> str:
    if ask.preparing:
        return ask.preparing
    return f"tried again {ask.rest:.0f} s after the last attempt: it made no progress, nor did the one before"


def _reason(picture: Picture, ask: Ask, ahead: Sequence[Ask]) -> str:
    if ask.trouble:
        return f"cannot be started just now, and is tried again: {ask.trouble}"
    nodes = [node for node in picture.of_pool(ask.pool) if node.name not in ask.excluded]
    total = largest_gang(nodes)
    usable = [node for node in nodes if node.healthy and not node.drained]
    free = [len(picture.free[node.name]) for node in usable]
    where = "in queue" if ask.pool == LOCAL else f"in pool {ask.pool}"
    turn = f"{_ordinal(len(ahead) + 1)} {where}" if ahead else f"next {where}"
    if len(ahead) == FAR:
        turn = f"behind the first {FAR:,} {where}"
    limit = _limit(picture, ask)
    if limit:
        return f"{turn}; {limit}"
    away = sum(node.slots for node in nodes) - sum(node.slots for node in usable)
    room = max(free, default=0) if ask.one_node else sum(free)
    if room >= ask.slots:
        if ahead:
            return f"{turn}; {_kept(picture, ahead)}"
        rival = _rival(picture, ask)
        return f"{turn}; what its limit leaves is kept for {rival}" if rival else f"{_slots(ask.slots)} free, starting"
    going = sum(run.slots for run in picture.runs.values() if run.leaving is not None and run.pool == ask.pool)
    more = (f"; {_slots(going)} on their way" if going else "") + (f"; {_slots(away)} drained or away" if away else "")
    if ask.one_node and ask.slots > 1:
        return f"{turn}; no node has {ask.slots} free{more}"
    if ahead:
        return f"{turn}; {total - sum(free)} of {_slots(total)} in use{more}"
    return f"{turn}; {_slots(ask.slots)} asked, {sum(free)} of {total} free{more}"


def _limit(picture: Picture, ask: Ask) -> str:
    """Whose limit or slot-hours it would go beyond; empty where it would not."""
    ledger = Ledger(picture)
    kind = ledger.stopped_by(ask)
    if kind is None:
        return ""
    name = ask.owner if kind == "user" else ask.group
    accounts: Accounts = picture.users if kind == "user" else picture.groups
    quota, use = accounts.quota(name), accounts.use(name, picture.at)
    if quota.slot_hours is not None and ledger.spent(kind, name):
        who = "you have used" if kind == "user" else f"group {name} has used"
        used, days = (use.window or 0.0) / 3600, quota.slot_hours.window / 86400
        return f"{who} {used:.0f} of {quota.slot_hours.hours:g} slot-hours in {days:g} days"
    whose = f"your limit of {quota.limit}" if kind == "user" else f"the limit of {quota.limit} of group {name}"
    return f"{whose} is in use" if use.held >= (quota.limit or 0) else f"{whose} leaves {(quota.limit or 0) - use.held}"


def _kept(picture: Picture, ahead: Sequence[Ask]) -> str:
    """For whom the free slots are kept that it does not get."""
    ledger, first = Ledger(picture), ahead[0]
    if ledger.guaranteed(first):
        by_group = picture.groups.quota(first.group).guarantee
        return f"slots are kept for the guarantee of {f'group {first.group}' if by_group else first.owner}"
    return f"slots are kept for {first.key}, which is next"


def _rival(picture: Picture, ask: Ask) -> Key | None:
    """For whom the rest of a limit is kept that this ask would use up."""
    ledger, known = Ledger(picture), picture.queue.asks
    firsts = (line.first for lines in picture.queue.lines.values() for line in lines.values())
    reserved = (known[each.key] for each in picture.reservations if each.key in known)
    for other in [*filter(ledger.guaranteed, firsts), *reserved]:
        if other.key != ask.key:
            ledger.promise(other)
            if ledger.stopped_by(ask):
                return other.key
    return None


def _left_out(picture: Picture, ask: Ask) -> str:
    there = {node.name for node in picture.of_pool(ask.pool)}
    return "".join(f"; without {name}" for name in sorted(there & ask.excluded))


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
