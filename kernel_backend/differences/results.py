"""Compare the results of two trainings: reports of the same steps, and weights in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_backend.differences.side import Side
from kernel_backend.model.diff import Results
from kernel_backend.model.states import ExperimentState

Told = dict[tuple[int, str], Mapping[str, float]]  # by step and kind


def results(a: Side, b: Side) -> Results:
    """Compare the results of two experiments: whether they are bit-identical, or the first step at which they differ.

    NaN equals NaN.
    """
    names = dict.fromkeys([*a.metrics, *b.metrics])
    metrics = {name: (a.metrics.get(name), b.metrics.get(name)) for name in names}
    before, after = _told(a), _told(b)
    shared = [key for key in sorted(before.keys() & after.keys()) if before[key].keys() & after[key].keys()]
    found = next((each for key in shared if (each := _parted(key, before[key], after[key], shared))), None)
    found = found or _ends(a, b, shared)
    text = "; ".join([found.text, *_unfinished(a), *_unfinished(b)])
    return found.model_copy(update={"text": text, "metrics": metrics})


def _parted(
    key: tuple[int, str], before: Mapping[str, float], after: Mapping[str, float], shared: Sequence[tuple[int, str]]
) -> Results | None:
    """Return a description of how two reports of the same step and kind differ; None if they are equal.

    `key` is (step, kind), `before` and `after` are the metrics in the reports of `a` and `b`, and `shared` has the keys
    of all reports that both trainings have. Only metrics that both have are compared.
    """
    (step, kind), names = key, [name for name in before if name in after]
    name = next((name for name in names if repr(before[name]) != repr(after[name])), None)
    if name is None:
        return None
    equal_to = max((other for other, _ in shared if other < step), default=None)
    until = "" if equal_to is None else f", equal up to step {equal_to}"
    text = f"results part at step {step}: {kind} {name} {_both(before[name], after[name])}{until}"
    return Results(identical=False, text=text, equal_to=equal_to, parted_at=step)


def _both(a: float, b: float) -> str:
    """Return two numbers as text, with enough digits to tell them apart."""
    short = f"{a:.6g}", f"{b:.6g}"
    return " and ".join(short if short[0] != short[1] else (repr(a), repr(b)))


def _ends(a: Side, b: Side, shared: Sequence[tuple[int, str]]) -> Results:
    """Compare the checkpoints of two trainings at the same steps; called if all their common reports are equal.

    `shared` has (step, kind) of each common report.
    """
    equal_to = shared[-1][0] if shared else None
    count = f"all {len(shared)} reports of the same steps are equal" if len(shared) > 1 else "a report is equal"
    told = count if shared else "they have reported nothing in common"
    steps = sorted(a.checkpoints.keys() & b.checkpoints.keys())
    for step in steps:
        before, after = a.checkpoints[step], b.checkpoints[step]
        differ = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
        if differ:
            text = f"the checkpoints of step {step} differ in {', '.join(differ)}; {told}"
            return Results(identical=False, text=text, equal_to=equal_to, parted_at=step)
    if not steps:
        newest = " and ".join(str(max(side.checkpoints, default="none")) for side in (a, b))
        text = f"{told}; there are no checkpoints of the same step to compare (newest: {newest})"
        return Results(identical=None, text=text, equal_to=equal_to)
    ends = {max(a.checkpoints), max(b.checkpoints)}
    meant = b.experiment.config.until == steps[-1]  # the last step of the verification
    whole = _completed(a) and _completed(b) and (ends == {steps[-1]} or meant)
    text = f"{'bit-identical' if whole else 'bit-identical so far'}: the checkpoints of step {steps[-1]}, and {told}"
    return Results(identical=whole or None, text=text, equal_to=max(steps[-1], equal_to or 0))


def _completed(side: Side) -> bool:
    return side.experiment.state is ExperimentState.COMPLETED


def _unfinished(side: Side) -> list[str]:
    if _completed(side):
        return []
    why = f": {side.failure.splitlines()[0]}" if side.failure else ""
    return [f"#{side.experiment.number} is {side.experiment.state}{why}"]


def _told(side: Side) -> Told:
    return {(report.step, report.kind): report.metrics for report in side.reports}
