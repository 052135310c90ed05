"""Choose the sizes of elastic gangs: with how many slots they start, and whether a running gang gets more.

A gang is elastic if its number of slots may change. Beyond its least number it gets only slots for which no request
waits, and releases them as soon as a request needs them (see `preemption`).
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
    """Return the numbers of slots above `least` and up to `most` with which an elastic gang may run.

    With `logical_workers`, each step has this many shares of work, and a slot computes one share per round: 8 shares
    take 3 rounds on 3 slots, and 2 rounds on 4 to 7. A number of slots that needs as many rounds as a smaller number is
    left out, as it would not be faster.

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
    """Divide `free` slots, in turn, among elastic requests in addition to their minimum numbers of slots.

    Return the total number of slots of each request, in the same order.

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

    If the gang holds slots already, the caller must mark them as free in `capacity` first. `whole` has the number of
    slots of each node if gangs get whole nodes only; then only sizes that use whole nodes are considered.
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
    """Divide free slots among the elastic gangs that start now; return the larger placements of those that get more.

    `least` has the placement of each gang with its least number of slots. `whole` has the number of slots of each node
    if gangs get whole nodes only. `capacities` and `ledger` are updated.
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
    """Return the decision to enlarge one of these running elastic gangs; None if none can grow, or none is worth it.

    If several gangs could grow, one of the user with the least usage does. `held` returns a gang with the slots that it
    holds according to `capacities`. `whole` has the number of slots of each node if gangs get whole nodes only.
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
    """Yield decisions to shrink elastic gangs that wait too long for slots in an external queue, such as Slurm's.

    A gang that has requested more than its least number for longer than `rules.unplaced` seconds requests its least
    number instead. `placed` has the gangs whose nodes the external scheduler has granted, though they have not started
    yet; these are left alone.
    """
    for run in runs:
        waits = run.waiting and run.leaving is None and run.key not in placed
        if waits and run.surplus and at - run.since >= rules.unplaced:
            reason = f"the site has not given it {run.slots} slots within {_about(rules.unplaced)}"
            yield Preempt(run, reason, "shrink", kept_for(run, at))


def kept_for(run: Allocation, at: float) -> Reservation:
    """Return the reservation by which an elastic gang gets slots again after its restart with another size.

    It is the reservation that the gang's request had when it started, else a new one made at time `at`.
    """
    return run.reservation or Reservation(run.key, run.kind, None, at)


def may_grow(run: Allocation, rules: Rules, at: float) -> bool:
    """Return whether an elastic gang may be restarted with more slots now.

    It must have run long enough since its last start that it may be preempted, and that the time of a restart is a
    small fraction (`rules.restarts`) of its running time.
    """
    when, progress = preemptible_at(run, rules), run.progress
    if run.elastic is None or run.leaving is not None or run.waiting or when is None or when > at or progress is None:
        return False
    return (
        bool(run.elastic.larger)
        and run.slots < run.elastic.larger[-1]
        and progress.elapsed * rules.restarts >= progress.restart
    )


def worth_growing(run: Allocation, more: int) -> float | None:
    """Return the seconds that training on `more` slots in total, instead of the present number, is expected to save.

    None if that is too little compared with the time that a restart takes, or if it is unknown.
    """
    if run.progress is None:
        return None
    gain = saved(run.progress, run.slots, more)
    return gain if gain > WORTH * run.progress.restart else None


def growth_reason(run: Allocation, more: int, gain: float) -> str:
    """Return a text for a gang's owner about why it restarts with `more` slots, its new total number.

    The text has the expected gain (`gain`, in seconds) and the measured time of a restart.
    """
    slots = more - run.slots
    restart = run.progress.restart if run.progress is not None else 0.0
    which = f"{slots} more slot{'' if slots == 1 else 's'}"
    return f"nobody waits for {which}, expected to save {_about(gain)} for a restart of {_about(restart)}"


def _about(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
