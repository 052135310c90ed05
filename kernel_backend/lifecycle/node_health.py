"""Decide which nodes are suspect, and thus excluded from new gangs, from the faults of attempts on them.

A node is suspect after one fault of its own (a GPU error, fewer devices than granted, another version of Daylight, a
wrong clock), or after two attempts were lost there, or could not begin, within an hour. It is then excluded for an
hour, twice as long with each repetition. At most half of a pool's nodes are excluded at once.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kernel_backend.model.node_faults import FaultKind, NodeFault, NodeName, Suspicion, node_fault
from kernel_backend.model.reports import AttemptResult, NodeProblem
from kernel_backend.model.resources import node_of
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Attempt, Failure

FIRST_S = 3600.0  # for how long a node is left out the first time
LONGEST_S = 24 * 3600.0
WITHIN_S = 3600.0  # longest time between losses that are counted together
REMEMBERED_S = 7 * 24 * 3600.0  # for how long faults are stored, and so count as repetitions
REPEATED: dict[FaultKind, str] = {"lost": "were lost there", "start": "could not begin there"}
LOSSES = 2  # number of faults of these kinds that makes a node suspect
MOST_NODES = 2  # on which a trial may meet the same kind of fault; with more, the trial or all nodes are the cause
# Failure type by which an engine or launcher reports a lost node; other failures of a gang are no fault of a node.
_NODE_LOST = "NodeLost"
# Messages of CUDA, NVML and HIP for errors of a GPU or its driver. Errors that a program's bug may also cause, such as
# an illegal memory access, are left out.
_GPU = re.compile(
    r"uncorrectable ECC|ECC error|fallen off the bus|GPU is lost|NVLink error|hipErrorECCNotCorrectable"
    r"|no CUDA-capable device|CUDA-capable device\(s\) is/are busy or unavailable|CUDA driver initialization failed"
    r"|hardware stack error"
    r"|CUDA_ERROR_(?:ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|SYSTEM_NOT_READY|NO_DEVICE|DEVICE_UNAVAILABLE)",
    re.IGNORECASE,
)


def suspicions(faults: Iterable[NodeFault], sizes: Mapping[str, int], now: float) -> dict[NodeName, Suspicion]:
    """Return why nodes are suspect at time `now`, by name, from all faults; `sizes` has each pool's number of nodes.

    In each pool, at most half of the nodes are excluded from new gangs: those that became suspect first. In the records
    of the others, `left_out` is False. A pool's only node is never suspect, as no other node can be compared with it.
    """
    by_node: defaultdict[NodeName, list[NodeFault]] = defaultdict(list)
    for fault in sorted(_counted(list(faults)), key=lambda fault: fault.at):
        by_node[fault.name].append(fault)
    folded = {name: _suspicion(theirs) for name, theirs in by_node.items()}
    current = {
        name: each
        for name, each in folded.items()
        if each is not None and each.until > now and sizes.get(name.pool, 0) > 1
    }
    out: Counter[str] = Counter()
    for name in sorted(current, key=lambda name: (current[name].since, name)):
        out[name.pool] += 1
        if out[name.pool] > sizes[name.pool] // 2:
            current[name] = current[name].model_copy(update={"left_out": False})
    return current


def _counted(faults: Collection[NodeFault]) -> Iterator[NodeFault]:
    """Yield the faults that make a node suspect.

    Faults of one kind that the same trial had on more than `MOST_NODES` nodes are left out: no node is their cause.
    """
    nodes: defaultdict[tuple[FaultKind, tuple[int, int]], set[NodeName]] = defaultdict(set)
    for fault in faults:
        nodes[fault.kind, fault.trial].add(fault.name)
    return (fault for fault in faults if len(nodes[fault.kind, fault.trial]) <= MOST_NODES)


def _suspicion(faults: Sequence[NodeFault]) -> Suspicion | None:
    """Return the newest suspicion of a node, from its faults in order of time; None if it was never suspect."""
    found: Suspicion | None = None
    times, recent = 0, list[NodeFault]()
    for fault in faults:
        if found is not None and fault.at < found.until:
            continue  # fault of a gang that ran there before the node was left out
        recent = [each for each in recent if each.at > fault.at - WITHIN_S] + [fault]
        same = [each for each in recent if each.kind == fault.kind]
        if fault.kind in REPEATED and len(same) < LOSSES:
            continue
        about = f"{len(same)} attempts {REPEATED[fault.kind]} within an hour: " if fault.kind in REPEATED else ""
        length = min(LONGEST_S, FIRST_S * 2.0 ** min(times, 10))
        found = Suspicion(since=fault.at, until=fault.at + length, reason=f"{about}{fault.reason}")
        times, recent = times + 1, []
    return found


def faults_of(
    attempt: Attempt, outcome: Outcome, result: AttemptResult | None, away: Collection[str], at: float
) -> list[NodeFault]:
    """Return the node faults that ended an attempt at time `at`; empty if no node was the cause.

    `away` has the nodes of the attempt's pool that do not answer now. A loss without a recorded cause is attributed to
    the gang's only node, or to those of its nodes in `away`.
    """
    found = list(_problems(attempt, outcome, result, away))
    return [node_fault(each.kind, NodeName(attempt.pool, each.node), attempt.id, at, each.reason) for each in found]


def _problems(
    attempt: Attempt, outcome: Outcome, result: AttemptResult | None, away: Collection[str]
) -> Iterator[NodeProblem]:
    names = [share.node for share in attempt.actual]
    failure = result.failure if result is not None else None
    known = result.problems if result is not None else ()
    for problem in known:
        node = problem.node or (names[0] if len(names) == 1 else "")
        if node:
            yield problem.model_copy(update={"node": node})
    if any(problem.kind in ("gpu", "start") for problem in known):
        return
    if (
        failure is not None
        and (text := gpu_error(failure))
        and failure.rank < sum(len(s.slots) for s in attempt.actual)
    ):
        yield NodeProblem(node=node_of(attempt.actual, failure.rank), kind="gpu", reason=text)
    elif _unexplained(attempt, outcome, failure) and not known:
        reason = failure.message if failure is not None else "its launcher vanished without a record"
        for name in names if len(names) == 1 else [name for name in names if name in away]:
            yield NodeProblem(node=name, kind="lost", reason=reason)


def _unexplained(attempt: Attempt, outcome: Outcome, failure: Failure | None) -> bool:
    """Return whether a gang was lost after it got its nodes, and no other cause is recorded than the loss of a node."""
    begun = attempt.granted_at is not None  # before that, the engine has not chosen its nodes
    return begun and outcome is Outcome.LOST and (failure is None or failure.type == _NODE_LOST)


def gpu_error(failure: Failure) -> str:
    """Return the part of a failure's message that reports a broken GPU or driver; "" if there is none.

    The rest of the message is left out, since all users see why a node is suspect.
    """
    found = _GPU.search(failure.message)
    return f"a rank met the GPU error {found[0]!r}" if found else ""
