"""What the end of a gang was, from its ranks' exit codes and failure records: plain functions."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.trial import Failure

FINISHED, RELEASED = 0, 85


def failed(code: int | None) -> bool:
    """Whether a rank that ended with this code failed; negative codes are signals."""
    return code is not None and code not in (FINISHED, RELEASED)


def gang_outcome(
    codes: Sequence[int | None],
    failures: Mapping[int, Failure],
    ended_by_us: frozenset[int],
    at: float,
    steps: Mapping[int, int | None] | None = None,
    hung: Failure | None = None,
    through: bool = False,
) -> AttemptResult:
    """The outcome of a gang.

    `codes` has an exit code a rank, `failures` what ranks wrote before they ended, `ended_by_us` the ranks that were
    killed because another had failed: their signals say nothing. `steps` knows how far each rank was, `hung` that the
    gang was ended because it made no progress, `through` that all ranks were through with their steps.
    """
    codes = tuple(codes)
    # Nobody leaves in peace before all have come to the barrier behind the last checkpoint: once one rank has, the
    # work is done and safe, however its peers end.
    if RELEASED in codes:
        return AttemptResult(outcome="released", exit_codes=codes, ended_at=at)
    if all(code == FINISHED for code in codes) or (through and FINISHED in codes):
        return AttemptResult(outcome="ok", exit_codes=codes, ended_at=at)
    failure = cause(codes, failures, ended_by_us, steps or {}, hung)
    port_taken = "EADDRINUSE" in failure.message or "Address already in use" in failure.message
    outcome = "lost" if failure.consequence and port_taken else "failed"
    return AttemptResult(outcome=outcome, exit_codes=codes, failure=failure, ended_at=at)


def lost(result: AttemptResult, reason: str) -> AttemptResult:
    """The outcome of a gang that something of ours took along, so that its codes and signals say nothing of it."""
    failure = Failure(rank=0, type="ForkserverLost", message=reason, consequence=True)
    return result.model_copy(update={"outcome": "lost", "failure": failure})


def cause(
    codes: Sequence[int | None],
    failures: Mapping[int, Failure],
    ended_by_us: frozenset[int],
    steps: Mapping[int, int | None],
    hung: Failure | None,
) -> Failure:
    """The first failure that is not the consequence of another rank's end."""
    causes = sorted((f for f in failures.values() if not f.consequence), key=lambda failure: failure.at)
    if causes:
        return causes[0]
    if hung is not None:
        return hung
    suspects = [rank for rank, code in enumerate(codes) if rank not in ended_by_us and rank not in failures]
    for rank in suspects:
        if failed(codes[rank]):
            return _silent(rank, codes[rank], steps.get(rank))
    for rank in suspects:
        if codes[rank] == FINISHED:
            return _silent(rank, codes[rank], steps.get(rank))
    if failures:
        return min(failures.values(), key=lambda failure: failure.at)
    return Failure(rank=0, type="Unknown", message="the gang ended and no rank said why")


def _silent(rank: int, code: int | None, step: int | None) -> Failure:
    """The failure of a rank that wrote none."""
    if code is not None and code < 0:
        name = _signal_name(-code)
        hint = {"SIGKILL": " (kill -9, or out of memory)", "SIGSEGV": " (a crash in native code)"}.get(name, "")
        return Failure(rank=rank, type=name, message=f"rank {rank} was ended by {name}{hint}", step=step)
    if code == FINISHED:
        message = f"rank {rank} exited before the others had finished"
        return Failure(rank=rank, type="EarlyExit", message=message, step=step)
    return Failure(rank=rank, type="Exit", message=f"rank {rank} exited with code {code}", step=step)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal: these have numbers only
        return f"SIG{number}"
