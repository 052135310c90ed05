"""How far two trainings went the same way: by what both told at the same steps, and by their weights at the end."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_backend.differences.side import Side
from kernel_backend.model.diff import Results
from kernel_backend.model.states import EXPERIMENT_ENDED

Told = dict[tuple[int, str], Mapping[str, float]]  # by step and kind


def results(a: Side, b: Side) -> Results:
    """Bit-identical, or from which step on not. Equal means equal in every bit of a float; NaN equals NaN."""
    names = dict.fromkeys([*a.metrics, *b.metrics])
    metrics = {name: (a.metrics.get(name), b.metrics.get(name)) for name in names}
    before, after = _told(a), _told(b)
    shared = sorted(before.keys() & after.keys())
    for step, kind in shared:
        name = _differing(before[step, kind], after[step, kind])
        if name is not None:
            equal_to = max((other for other, _ in shared if other < step), default=None)
            values = f"{kind} {name} {_value(before[step, kind], name)} and {_value(after[step, kind], name)}"
            until = "" if equal_to is None else f", equal up to step {equal_to}"
            text = f"results part at step {step}: {values}{until}"
            return Results(identical=False, text=text, equal_to=equal_to, parted_at=step, metrics=metrics)
    equal_to = shared[-1][0] if shared else None
    identical, parted_at, text = _ends(a, b, len(shared))
    return Results(identical=identical, text=text, equal_to=equal_to, parted_at=parted_at, metrics=metrics)


def _ends(a: Side, b: Side, shared: int) -> tuple[bool | None, int | None, str]:
    """The verdict where all that both told is equal: whether identical, the step at which not, and a sentence."""
    told = f"all {shared} values that both reported are equal" if shared else "they have reported nothing in common"
    steps = sorted(a.checkpoints.keys() & b.checkpoints.keys())
    for step in steps:
        before, after = a.checkpoints[step], b.checkpoints[step]
        differ = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
        if differ:
            return False, step, f"the checkpoints of step {step} differ in {', '.join(differ)}; {told}"
    if not steps:
        newest = " and ".join(str(max(side.checkpoints, default="none")) for side in (a, b))
        return None, None, f"{told}; there are no checkpoints of the same step to compare (newest: {newest})"
    last = f"the checkpoints of step {steps[-1]}, and {told}"
    ends = {max(a.checkpoints), max(b.checkpoints)}
    meant = b.experiment.config.until == steps[-1]  # it was to go no further
    if _over(a) and _over(b) and (ends == {steps[-1]} or meant):
        return True, None, f"bit-identical: {last}"
    return None, None, f"bit-identical so far: {last}"


def _over(side: Side) -> bool:
    return side.experiment.state in EXPERIMENT_ENDED


def _told(side: Side) -> Told:
    return {(report.step, report.kind): report.metrics for report in side.reports}


def _differing(before: Mapping[str, float], after: Mapping[str, float]) -> str | None:
    names = [name for name in before if name in after]
    return next((name for name in names if repr(before[name]) != repr(after[name])), None)


def _value(metrics: Mapping[str, float], name: str) -> str:
    return f"{metrics[name]!r}"
