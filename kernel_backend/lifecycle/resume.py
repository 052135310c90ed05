"""Choose the checkpoint from which a trial resumes: the newest from which attempts have not failed repeatedly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from kernel_backend.lifecycle.error_class import of_storage
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import BEFORE, Attempt, Failure, checkpoint_order, checkpoint_step

SUSPECT = 3  # failures at the same step after the same checkpoint that make it suspect

Place = int | str  # a step, or the phase before the first one


class Resume(NamedTuple):
    """Checkpoint `<step>-<attempt>` from which the next attempt starts (None: from the beginning), and a note."""

    point: str | None
    note: str | None = None


def resume_point(attempts: Sequence[Attempt], committed: Sequence[str]) -> Resume:
    """Return where a trial's next attempt starts, from its attempts and the names of its `committed` checkpoints.

    The note, if any, says why the trial resumes from an older checkpoint than its newest, or that the checkpoint's
    attempt is not in the store.
    """
    line = lineage(attempts, committed)
    doubted = suspects(attempts)
    trusted = [each for each in line if each not in doubted]
    point = trusted[-1] if trusted else None
    newest = line[-1] if line else None
    if newest is None or newest == point or attempts[-1].resume_from != newest:
        return Resume(point, _forgotten(attempts, point))
    return Resume(point, _doubt(newest, doubted[newest], point))


def remembered(attempts: Sequence[Attempt], committed: Sequence[str]) -> list[str]:
    """Return those committed checkpoints whose attempts are in the store; a restored database may lack some.

    A trial of a search must not resume from any other checkpoint, since the search would miss the reports up to there.
    """
    known = {BEFORE, *(attempt.number for attempt in attempts)}
    return [each for each in committed if checkpoint_order(each)[1] in known]


def lineage(attempts: Sequence[Attempt], committed: Sequence[str]) -> list[str]:
    """Return the committed checkpoints of the steps that led to the trial's present state, oldest first.

    If a later attempt resumed from an earlier step, checkpoints of older attempts after that step are left out.
    """
    own = []
    for each in committed:
        reached, committer = checkpoint_order(each)
        fences = [checkpoint_step(later.resume_from) for later in attempts if later.number > committer]
        if committer == BEFORE or reached <= min(fences, default=reached):
            own.append(each)
    return sorted(own, key=checkpoint_order)


def suspects(attempts: Sequence[Attempt]) -> dict[str, Place]:
    """Return the checkpoints from which three attempts resumed and failed at the same place, each with that place.

    The place is a step, or "start" for a crash before the first step.
    """
    ends = Counter(
        (attempt.resume_from, place)
        for attempt in attempts
        if attempt.resume_from is not None and (place := _failed_at(attempt)) is not None
    )
    return {point: place for (point, place), count in ends.items() if point is not None and count >= SUSPECT}


def progressed(attempts: Sequence[Attempt], committed: Sequence[str]) -> bool:
    """Return whether the newest attempt got beyond every checkpoint from which any attempt resumed.

    Repeating steps after resuming from an older checkpoint is no progress: otherwise a crash at the same step would be
    retried for ever.
    """
    reached = max((checkpoint_step(each) for each in lineage(attempts, committed)), default=0)
    return reached > max((checkpoint_step(attempt.resume_from) for attempt in attempts), default=0)


def _forgotten(attempts: Sequence[Attempt], point: str | None) -> str | None:
    if point is None or remembered(attempts, [point]) or (attempts and attempts[-1].resume_from == point):
        return None
    return (
        f"training goes on from checkpoint {point}, of an attempt that this database does not know, since it is older: "
        "what that attempt reported is missing"
    )


def _failed_at(attempt: Attempt) -> Place | None:
    failure = attempt.failure
    if attempt.outcome is not Outcome.FAILED or failure is None or of_storage(failure):
        return None
    return failure.step if failure.step is not None else _start_of(failure)


def _start_of(failure: Failure) -> Place | None:
    # An error before the first step comes from code or machine; only a crash may be due to the checkpoint.
    return "start" if failure.crash else None


def _doubt(newest: str, place: Place, point: str | None) -> str:
    where = f"at step {place}" if isinstance(place, int) else "before its first step"
    start = f"checkpoint {point}" if point else "the beginning"
    again = f"steps {checkpoint_step(point) + 1} to {checkpoint_step(newest)} are trained again"
    return f"{SUSPECT} attempts from checkpoint {newest} failed {where}: training goes on from {start}, {again}"
