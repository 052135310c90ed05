"""Derive how a gang ended from the exit codes and failure records of its ranks: pure functions."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence

from kernel_backend.model.launch.exit_codes import FINISHED, RELEASED
from kernel_backend.model.reports import AttemptResult, NodeEnd, NodeProblem
from kernel_backend.model.trial import OUT_OF_MEMORY, Failure

_MAYBE = " (kill -9, or out of memory)"
_PORT_TAKEN = ("EADDRINUSE", "Address already in use")
_OWN_PROCESSES = (
    "The program opens this port by itself, and each slot runs the program: if it starts or connects processes, call "
    "train() in place of mp.spawn(train, ...) or notebook_launcher(train, ...), and init_process_group() without an "
    "address, as under torchrun, with RANK and WORLD_SIZE from the environment; or take --slots 1"
)
_KILLED = ("SIGKILL", "signal: Killed")  # in the messages of ranks, of their programs, and of PyTorch's data loaders


def failed(code: int | None) -> bool:
    """Return True if a rank with this exit code failed; False also for None, a rank that has not exited."""
    return code is not None and code not in (FINISHED, RELEASED)


def broken_rank(codes: Mapping[int, int | None]) -> str:
    """Return how the first failed rank ended, such as `rank 3 was ended by SIGKILL`; "" if no rank failed."""
    return next((_silent(rank, code, None).message for rank, code in sorted(codes.items()) if failed(code)), "")


def gang_outcome(
    codes: Sequence[int | None],
    failures: Mapping[int, Failure],
    ended_by_us: frozenset[int],
    at: float,
    steps: Mapping[int, int | None] | None = None,
    hung: Failure | None = None,
    through: bool = False,
) -> AttemptResult:
    """Return how a gang ended: completed, released (with a checkpoint), lost or failed, and the failure that caused it.

    `codes` has the exit code of each rank, and `failures` the failure records that ranks wrote, by rank. The ranks
    `ended_by_us` were killed because another rank had failed, so that the signals that ended them do not count. `at` is
    the time of the end, in seconds since the epoch. `steps` has the last step of each rank, and `hung` is the failure
    if the gang was ended because it made no progress. `through` is True if all ranks had completed their steps.
    """
    codes = tuple(codes)
    # No rank exits normally before all have passed the barrier after the last checkpoint. Once one has, the work is
    # complete and saved, however the others end.
    if RELEASED in codes:
        return AttemptResult(outcome="released", exit_codes=codes, ended_at=at)
    if all(code == FINISHED for code in codes) or (through and FINISHED in codes):
        return AttemptResult(outcome="ok", exit_codes=codes, ended_at=at)
    failure = cause(codes, failures, ended_by_us, steps or {}, hung)
    outcome = "failed"
    if any(each in failure.message for each in _PORT_TAKEN):
        if failure.frames:  # of the user's code, which chose the port
            message = failure.message.rstrip(". \n")
            failure = failure.model_copy(update={"message": f"{message}. {_OWN_PROCESSES}"})
        elif failure.consequence:
            outcome = "lost"
    return AttemptResult(outcome=outcome, exit_codes=codes, failure=failure, ended_at=at)


def result_of(ends: Sequence[NodeEnd]) -> AttemptResult:
    """Return how a gang ended, from the records of its nodes' launchers; some of these may be missing.

    A node without a record counts as lost. In that case the gang counts as lost as well, unless a rank has failed by
    itself.
    """
    for end in ends:
        if end.refused is not None:
            return AttemptResult(outcome=end.refused_as, exit_codes=(), failure=end.refused, ended_at=end.ended_at)
    size, names, at = ends[0].size, ends[0].names, max(end.ended_at for end in ends)
    codes = {rank: code for end in ends for rank, code in end.codes.items()}
    missing = [name for node, name in enumerate(names) if node not in {end.node for end in ends}]
    result = gang_outcome(
        [codes.get(rank) for rank in range(size)],
        {failure.rank: failure for end in ends for failure in end.failures},
        frozenset(rank for end in ends for rank in end.killed),
        at,
        {rank: step for end in ends for rank, step in end.steps.items()},
        min((end.hung for end in ends if end.hung is not None), key=lambda failure: failure.at, default=None),
        not missing and all(end.through for end in ends),
    )
    blameless = result.failure is None or result.failure.consequence or result.failure.type in ("Unknown", "EarlyExit")
    if result.outcome == "failed" and missing and blameless:
        result = lost(result, f"node {', '.join(missing)} was lost", "NodeLost")
    elif result.outcome == "failed" and (reason := next((end.lost for end in ends if end.lost), "")):
        result = lost(result, reason)
    result = result.model_copy(update={"failure": _explained(result.failure, ends)})
    preparing = result.failure is not None and any(result.failure.rank in end.preparing for end in ends)
    matched = tuple(match for end in ends for match in end.matched)
    problems = tuple(_problems(ends, missing if result.outcome == "lost" else ()))
    return result.model_copy(update={"matched": matched, "preparing": preparing, "problems": problems})


def _explained(failure: Failure | None, ends: Sequence[NodeEnd]) -> Failure | None:
    """Return the failure; if it is a kill for lack of memory, with a message that says so.

    That is so if its message mentions a killed process, and the kernel has killed one on that rank's node for lack of
    memory.
    """
    if failure is None or not any(word in failure.message for word in _KILLED):
        return failure
    lack = next((end.memory for end in ends if end.memory and failure.rank in end.codes), "")
    if not lack:
        return failure
    what = failure.message.removesuffix(_MAYBE).rstrip(". ")
    message = (
        f"{what}. The kernel had no memory left for it ({lack}): a smaller batch or fewer loader workers need less"
    )
    return failure.model_copy(update={"type": OUT_OF_MEMORY, "message": message})


def _problems(ends: Sequence[NodeEnd], missing: Sequence[str]) -> Iterator[NodeProblem]:
    """Yield the faults of nodes that ended the gang: lost nodes, and broken GPUs.

    `ends` are the records of the nodes' launchers; `missing` has the names of the nodes without a record.
    """
    for name in missing:
        yield NodeProblem(node=name, kind="lost", reason=f"node {name} was lost")
    for end in ends:
        if end.gpu:
            yield NodeProblem(node=end.names[end.node], kind="gpu", reason=end.gpu)


def lost(result: AttemptResult, reason: str, cause: str = "ForkserverLost") -> AttemptResult:
    """Return `result` with the outcome "lost", for a gang that ended by a fault of the node or of Daylight itself.

    `reason` is the message of the failure, and `cause` its type.
    """
    failure = Failure(rank=0, type=cause, message=reason, consequence=True)
    return result.model_copy(update={"outcome": "lost", "failure": failure})


def cause(
    codes: Sequence[int | None],
    failures: Mapping[int, Failure],
    ended_by_us: frozenset[int],
    steps: Mapping[int, int | None],
    hung: Failure | None,
) -> Failure:
    """Return the failure that ended a gang: the first one that is not a consequence of the end of another rank.

    The parameters are those of `gang_outcome`.
    """
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
    """Return a failure record for a rank that wrote none, from its exit code and its last step."""
    if code is not None and code < 0:
        name = _signal_name(-code)
        hint = {"SIGKILL": _MAYBE, "SIGSEGV": " (a crash in native code)"}.get(name, "")
        return Failure(rank=rank, type=name, message=f"rank {rank} was ended by {name}{hint}", step=step)
    if code == FINISHED:
        message = f"rank {rank} exited before the others had finished"
        return Failure(rank=rank, type="EarlyExit", message=message, step=step)
    return Failure(rank=rank, type="Exit", message=f"rank {rank} exited with code {code}", step=step)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"SIG{number}"
