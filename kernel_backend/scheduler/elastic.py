"""Choose the sizes of elastic gangs: the slots with which they start, and whether a running one grows.

They get only slots for which no request waits, and release them as soon as one does (see `preemption`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from math import inf

from kernel_backend.scheduler.decisions import Preempt, Start
from kernel_backend.scheduler.placement import Capacity, SlotsByNode
from kernel_backend.scheduler.quotas import Ledger
from kernel_backend.scheduler.requests import Allocation, RequestKey, Reservation, SlotRequest
from kernel_backend.scheduler.reservations import preemptible_at
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.speedup import saved

WORTH = 2.0  # a gang grows if that is expected to save so many times the restart


def larger_sizes(least: int, most: int, logical_workers: int | None) -> Sequence[int]:
    """Return the numbers of slots between `least` and `most` with which an elastic gang may run, without `least`.

    Logical workers are computed in turns: numbers of slots that need as many turns as a smaller number are left out.

    Examples
    --------
    >>> list(larger_sizes(1, 4, None))
    [2, 3, 4]
    >>> list(larger_sizes(1, 8, logical_workers=8))
    [2, 3, 4, 8]
    """
    sizes = range(least + 1, most + 1)
    if logical_workers is None:
        return sizes
    return tuple(size for size in sizes if -(-logical_workers // size) < -(-logical_workers // (size - 1)))


def divided(free: int, requests: Sequence[SlotRequest]) -> list[int]:
    """Divide `free` slots among elastic requests, beyond their least numbers; return the size of each request.

    Examples
    --------
    >>> divided(3, [SlotRequest(nth, 1, 1, 0.0, larger=(2, 4)) for nth in (1, 2)])
    [2, 2]
    """
    sizes = [request.slots for request in requests]
    steps = [iter(request.larger) for request in requests]
    open_ = list(range(len(requests)))
    while open_:
        again: list[int] = []
        for nth in open_:
            size = next(steps[nth], None)
            if size is not None and size - sizes[nth] <= free:
                free -= size - sizes[nth]
                sizes[nth] = size
                again.append(nth)
        open_ = again
    return sizes


def largest_fit(
    request: SlotRequest, above: int, most: float, capacity: Capacity, whole: Mapping[str, int] | None = None
) -> SlotsByNode | None:
    """Return a placement for the largest gang of more than `above` and at most `most` slots; None if none fits.

    The slots that the gang holds already must be free in `capacity`. With `whole`, the slots of each node, only sizes
    that use whole nodes are considered.
    """
    sizes = request.larger
    low, high = bisect_right(sizes, above), bisect_right(sizes, min(most, capacity.total))
    if whole is not None:
        fits = (capacity.place(size, request.one_node, request.excluded) for size in reversed(sizes[low:high]))
        return next((each for each in fits if each and all(count == whole[name] for name, count in each)), None)
    found: SlotsByNode | None = None
    while low < high:
        middle = (low + high) // 2
        placed = capacity.place(sizes[middle], request.one_node, request.excluded)
        if placed is None:
            high = middle
        else:
            found, low = placed, middle + 1
    return found


def enlarged(
    starts: Sequence[Start],
    capacities: Mapping[str, Capacity],
    ledger: Ledger,
    least: Mapping[RequestKey, SlotsByNode],
    whole: Mapping[str, int] | None = None,
) -> dict[RequestKey, SlotsByNode]:
    """Return larger placements for elastic gangs that start now, where free slots are left.

    The free slots are divided among them; `capacities` and `ledger` are updated. `least` has where they get their least
    numbers, and `whole` the slots of each node if all gangs get whole nodes.
    """
    found: dict[RequestKey, SlotsByNode] = {}
    for kind, capacity in capacities.items():
        theirs = [start for start in starts if start.placement[0].kind == kind and start.request.key in least]
        parts: list[float] = [*divided(capacity.total, [start.request for start in theirs])]
        # Limits and nodes may keep some of them from using their part, which the others then get.
        for bounds in (parts, [inf] * len(theirs)):
            for start, most in zip(theirs, bounds, strict=True):
                request, before = start.request, found.get(start.request.key, least[start.request.key])
                held = sum(count for _, count in before)
                capacity.give(before)
                placed = largest_fit(request, held, min(most, ledger.room(request, held)), capacity, whole)
                capacity.take(placed or before)
                if placed is not None:
                    ledger.commit(request, more=sum(count for _, count in placed) - held)
                    found[request.key] = placed
    return found


def growth(
    runs: Iterable[Allocation],
    capacities: Mapping[str, Capacity],
    ledger: Ledger,
    at: float,
    held: Callable[[Allocation], Allocation] = lambda run: run,
    whole: Mapping[str, int] | None = None,
) -> Preempt | None:
    """Return the decision to grow one of these gangs; if several could grow, that of the user with the least usage.

    `held` returns a gang with the slots that it has in `capacities`; `whole` has the slots of each node if all gangs
    get whole nodes.
    """

    def order(run: Allocation) -> tuple[float, float, float, RequestKey]:
        return ledger.group_share(run.group), ledger.member_share(run.group, run.owner), run.since, run.key

    for run in sorted(runs, key=order):
        request, capacity = run.elastic, capacities.get(run.kind)
        if request is None or capacity is None:
            continue
        own = tuple(held(run).by_node.items())
        capacity.give(own)
        placed = largest_fit(request, run.slots, ledger.room(request, run.slots), capacity, whole)
        capacity.take(own)
        more = sum(count for _, count in placed or ())
        gain = worth_growing(run, more) if placed else None
        if gain is not None:
            return Preempt(run, growth_reason(run, more, gain), "grow", kept_for(run, at))
    return None


def unplaced(runs: Iterable[Allocation], placed: Container[RequestKey], rules: Rules, at: float) -> Iterator[Preempt]:
    """Yield elastic gangs that wait in their site's queue for more than their least numbers, and do so in vain.

    `placed` are the gangs whose nodes the site has granted, though they have not begun there yet.
    """
    for run in runs:
        waits = run.waiting and run.leaving is None and run.key not in placed
        if waits and run.surplus and at - run.since >= rules.unplaced:
            reason = f"the site has not given it {run.slots} slots within {_about(rules.unplaced)}"
            yield Preempt(run, reason, "shrink", kept_for(run, at))


def kept_for(run: Allocation, at: float) -> Reservation:
    """Return the reservation that a gang which changes its size gets for its restart."""
    return run.reservation or Reservation(run.key, run.kind, None, at)


def may_grow(run: Allocation, rules: Rules, at: float) -> bool:
    """Return whether an elastic gang has run for long enough since its last change to be restarted in order to grow."""
    when, progress = preemptible_at(run, rules), run.progress
    if run.elastic is None or run.leaving is not None or run.waiting or when is None or when > at or progress is None:
        return False
    return (
        bool(run.elastic.larger)
        and run.slots < run.elastic.larger[-1]
        and progress.elapsed * rules.restarts >= progress.restart
    )


def worth_growing(run: Allocation, more: int) -> float | None:
    """Return the seconds that growing to `more` slots is expected to save.

    None if the restart costs too much of them.
    """
    if run.progress is None:
        return None
    gain = saved(run.progress, run.slots, more)
    return gain if gain > WORTH * run.progress.restart else None


def growth_reason(run: Allocation, more: int, gain: float) -> str:
    """Return for the owner why a gang grows: the expected gain, and the measured cost of a restart."""
    slots = more - run.slots
    restart = run.progress.restart if run.progress is not None else 0.0
    which = f"{slots} more slot{'' if slots == 1 else 's'}"
    return f"nobody waits for {which}, expected to save {_about(gain)} for a restart of {_about(restart)}"


def _about(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
