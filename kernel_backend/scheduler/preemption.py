"""Choose gangs to preempt: the youngest first, no more than needed, and none if all would free too few slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kernel_backend.model.resources import Node
from kernel_backend.scheduler.placement import Capacity
from kernel_backend.scheduler.requests import Allocation, RequestKey, SlotRequest
from kernel_backend.scheduler.reservations import Plan, preemptible_at
from kernel_backend.scheduler.rules import Rules


def preemptible_now(runs: Iterable[Allocation], rules: Rules, at: float) -> list[Allocation]:
    """Return the gangs that may be preempted now: idle notebook servers first, then the youngest gangs.

    Of equally old gangs, those with the fewest slots come first. A preempted gang commits a checkpoint, so that it
    loses only the time to resume, which does not depend on its age.
    """

    def may(run: Allocation) -> bool:
        when = preemptible_at(run, rules)
        return run.leaving is None and when is not None and when <= at

    return sorted(filter(may, runs), key=_youngest)


def _youngest(run: Allocation) -> tuple[bool, float, int, int, int, RequestKey]:
    return not run.key.server, -run.since, run.slots, -run.key.experiment, -run.key.trial, run.key


def victims(
    request: SlotRequest,
    capacities: Mapping[str, Capacity],
    nodes: Sequence[Node],
    candidates: Sequence[Allocation],
    leaving: Sequence[Allocation],
    before: Sequence[Plan],
) -> list[Allocation]:
    """Return those `candidates`, in order, that must be preempted to free enough slots for a request.

    Free slots, and those of gangs in `leaving`, are counted, too. Empty if no preemption is needed, or if all
    candidates together free too few slots. `before` are the plans of requests that are served earlier.
    """
    usable = [node for node in nodes if node.name not in request.excluded]
    choices: list[list[Allocation] | None] = []
    if request.one_node:
        for node in usable:
            if node.slots >= request.slots:
                kept = sum(each.request.slots for each in before if each.node == node.name)
                free = capacities[node.kind].free.get(node.name, 0)
                held = {run.key: run.by_node[node.name] for run in (*candidates, *leaving)}
                choices.append(_least(candidates, leaving, held, request.slots + kept - free))
    else:
        for kind in sorted({node.kind for node in usable}):
            kept = sum(each.request.slots for each in before if each.kind == kind)
            free = capacities[kind].beside(request.excluded, {})
            held = {run.key: run.on(request.excluded) if run.kind == kind else 0 for run in (*candidates, *leaving)}
            choices.append(_least(candidates, leaving, held, request.slots + kept - free))
    found = [chosen for chosen in choices if chosen is not None]
    return min(found, key=lambda chosen: (sum(run.slots for run in chosen), [run.key for run in chosen]), default=[])


def _least(
    candidates: Sequence[Allocation], leaving: Sequence[Allocation], held: Mapping[RequestKey, int], missing: int
) -> list[Allocation] | None:
    """Return the candidates that free `missing` slots, without superfluous ones; None if all together free too few."""
    missing -= sum(held[run.key] for run in leaving)
    chosen: list[Allocation] = []
    for run in candidates:
        if missing <= 0:
            break
        if held[run.key]:
            chosen.append(run)
            missing -= held[run.key]
    if missing > 0:
        return None
    for run in reversed(chosen):
        if missing + held[run.key] <= 0:
            missing += held[run.key]
            chosen.remove(run)
    return chosen


def beyond(candidates: Sequence[Allocation], excess: int) -> list[Allocation]:
    """Return as many of the first candidates as together hold at least `excess` slots, to be preempted."""
    chosen: list[Allocation] = []
    for run in candidates:
        if excess <= 0:
            break
        chosen.append(run)
        excess -= run.slots
    return chosen
