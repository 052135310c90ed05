"""Derive the status of gangs from the attempts' folders and from pods.

A result that a launcher has written takes precedence over the states of the pods.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from kernel_backend.engines.base import GangStatus
from kernel_backend.engines.folders import OUTCOMES, GangFolders, never_launched
from kernel_backend.engines.kubernetes.allocated_gangs import ENDED
from kernel_backend.engines.kubernetes.allocations import AllocationPods, PodAllocation
from kernel_backend.engines.kubernetes.objects import owner_of
from kernel_backend.engines.kubernetes.pods import (
    Finished,
    PodState,
    failed_launcher,
    half_since,
    hopeless,
    out_of_memory,
    pod_state,
    taken_away,
    taken_by,
    wait_text,
)
from kernel_backend.engines.kubernetes.submission import Submission, read_submission, write_submission
from kernel_backend.engines.kubernetes.watch import CachedPods
from kernel_backend.engines.submission import by_signal
from kernel_backend.errors import DaylightError
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import AttemptResult, NodeProblem
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure

SETTLE_S = 3.0  # for a launcher's record to arrive, after its pod has ended without one
RECORD_S = 15.0  # the same where the pod ended well, and its files may be on a shared disk
PLACEMENT_S = 300.0  # for which a half gang keeps its nodes, as an autoscaler takes minutes to add the others
BEGINNING = "Kubernetes: being submitted"
BEFORE_START = "Kubernetes: about to begin in pods that its search keeps"
NOT_MET = "its launchers have not met yet"
NOT_PLACED = "NotPlaced"  # type of the failure of a gang of which only a part found nodes
NO_LAUNCHER = "LauncherFailed"  # type of the failure of a gang whose launchers have not reached the service
_log = logging.getLogger(__name__)


class _Gang(NamedTuple):
    """State of a gang as it was last read: its record, and the states of its pods."""

    key: AttemptId
    folder: AttemptFolder
    submission: Submission
    here: dict[int, PodState]  # pods that there are, by number
    gone: dict[int, PodState]  # the last state of those that are gone
    kept: PodAllocation | None  # the allocation whose pods they are; None if they are its own, or it has ended

    @property
    def pods(self) -> list[PodState]:
        """Return the states of all pods of the gang; of deleted pods the last state that was seen."""
        return [*self.here.values(), *self.gone.values()]

    @property
    def size(self) -> int:
        """Return how many pods the gang has when it is complete."""
        return max(1, len(self.folder.job().placement))

    @property
    def may_run(self) -> bool:
        """Return whether a gang that is assigned to an allocation has started there.

        That is so if a launcher has written to its folder, or the holder has announced the start.
        """
        return bool(self.began) or (self.kept is not None and self.submission.step in self.kept.started)

    @property
    def codes(self) -> Mapping[int, int | None]:
        """Return the exit codes of the gang's launchers, by node number, as far as the holders have reported them.

        Empty if the gang runs in no allocation.
        """
        return self.kept.codes(self.submission.step) if self.kept is not None else {}

    @property
    def broken(self) -> list[int]:
        """Return the nodes of an allocation whose launchers failed before they had reached the service."""
        return [node for node, code in self.codes.items() if code and node not in self.began]

    @property
    def out_of_memory(self) -> Finished | None:
        """Return how the gang ended if a container was killed for using too much memory, else None.

        In an allocation, a pod that ended with exit code 0 does not count: only an earlier gang can have used up its
        memory.
        """
        return out_of_memory([each for each in self.pods if not self.submission.allocation or each.exit_code])

    @property
    def began(self) -> list[int]:
        """Return the numbers of the nodes whose launchers have started."""
        return [each for each in range(self.size) if AttemptFolder(self.folder.path, each).launcher() is not None]


class StatusReader:
    """Reader of the status of a pool's gangs.

    It stores each outcome that it derives from pods, as Kubernetes deletes ended pods.
    """

    def __init__(
        self,
        folders: GangFolders,
        allocation: Callable[[Submission], PodAllocation | None],
        placement_timeout: float,
    ) -> None:
        """Create the reader of the gangs in `folders`.

        `allocation` returns the allocation in which a gang runs, or None. `placement_timeout` is how many seconds a
        gang may wait while only some of its pods have nodes.
        """
        self._folders, self._allocation, self._patience = folders, allocation, placement_timeout
        self.away: Collection[str] = ()  # nodes that are not ready
        self.events: Mapping[str, str] = {}  # what events tell of waiting pods, by name
        self._since: dict[AttemptId, float] = {}  # when a gang's pods had first ended without a record

    def forget(self, key: AttemptId) -> None:
        """Drop what is cached about the gang of an attempt."""
        self._since.pop(key, None)

    def unended(self, of: Sequence[AttemptId] | None = None) -> dict[AttemptId, Submission]:
        """Return the records of gangs that were not forgotten and for which no end is stored, by attempt.

        If `of` is given, only attempts in it are considered.
        """
        found = ((key, read_submission(self._folders.of(key))) for key in self._folders.listed(of))
        return {key: each for key, each in found if each is not None and each.end is None}

    def read(
        self, cached: CachedPods, absent: Collection[str], of: Sequence[AttemptId] | None = None
    ) -> list[GangStatus]:
        """Return the status of each gang that was not forgotten; if `of` is given, only of attempts in it.

        `absent` has the names of the ConfigMaps of which the API server has just confirmed that they own no pod.
        """
        return [self._known_status(key, cached, absent) for key in self._folders.listed(of)]

    def _known_status(self, key: AttemptId, cached: CachedPods, absent: Collection[str]) -> GangStatus:
        """Return the status of a gang; if its files cannot be read, log the error and report it as running."""
        try:
            folder = self._folders.of(key)
            known = folder.token_digest()  # read first, since `forget` deletes the token
            return self._look(key, folder, cached, absent).model_copy(update={"token_digest": known})
        except (OSError, DaylightError, ValidationError) as error:
            _log.warning("the state of attempt %s cannot be read now: %s", key, error)
            return GangStatus(key=key, phase="running")

    def _look(self, key: AttemptId, folder: AttemptFolder, cached: CachedPods, absent: Collection[str]) -> GangStatus:
        submission = read_submission(folder)
        if submission is None:
            return GangStatus(key=key, phase="ended", outcome=Outcome.LOST)
        if submission.end is not None:
            return GangStatus(key=key, phase="ended", outcome=submission.end.outcome, result=submission.end.result)
        gang = _Gang(key, folder, submission, *_states(submission, cached), self._allocation(submission))
        result = folder.result() or folder.refusal()
        if result is not None:
            return self._recorded(gang, result)
        if submission.delayed:
            return GangStatus(key=key, phase="pending", reason=submission.delay or BEGINNING)
        if (end := self._ending(gang, submission.pods in absent)) is not None:
            return self._concluded(gang, end)
        if submission.allocation and not gang.may_run:
            return GangStatus(key=key, phase="pending", reason=self._reason(gang, cached))
        if not gang.here or any(each.phase == "Pending" for each in gang.here.values()):
            reason = self._reason(gang, cached)
            began = bool(gang.gone) or bool(gang.began)
            return GangStatus(key=key, phase="running" if began and not gang.here else "pending", reason=reason)
        return GangStatus(key=key, phase="running", reason=f"runs in Kubernetes; {folder.wait() or NOT_MET}")

    def _reason(self, gang: _Gang, cached: CachedPods) -> str:
        """Return a text for users on why a gang has not started yet."""
        if cached.problem:
            return cached.problem
        if gang.kept is not None and (gang.kept.record.closing or gang.kept.closed):
            return f"Kubernetes: {ENDED}"
        if gang.kept is not None and gang.kept.running:
            return BEFORE_START
        return wait_text(list(gang.here.values()), gang.size, self.events)

    def _recorded(self, gang: _Gang, result: AttemptResult) -> GangStatus:
        """Return the status of a gang whose launchers have written a result.

        If the result says only that a signal killed a rank, and the pods show that Kubernetes sent the signal, their
        state decides the outcome instead.
        """
        if by_signal(result):
            own = gang.out_of_memory or taken_away(gang.pods, time.time(), self.away)
            if own is not None:
                return self._concluded(gang, own)
            alive = any(not each.over for each in gang.here.values())
            if alive and time.time() - result.ended_at < SETTLE_S:
                return GangStatus(key=gang.key, phase="running")
        outcome = OUTCOMES[result.outcome]
        if outcome is Outcome.RELEASED and gang.submission.cancelled == "kill":
            outcome = Outcome.LOST  # a kill begins with SIGTERM, which asks for a release
        if outcome is Outcome.RELEASED and not gang.submission.cancelled and result.failure is None:
            why = gang.submission.ending or taken_by(gang.pods, self.events)
            cause = Failure(rank=0, type="Preempted", message=why, consequence=True) if why else None
            result = result.model_copy(update={"failure": cause})
        return GangStatus(key=gang.key, phase="ended", outcome=outcome, result=result)

    def _ending(self, gang: _Gang, absent: bool) -> Finished | None:
        """Return how a gang ended whose launchers have written no result, as its pods show.

        None if the gang runs or waits, or as long as a result may still appear. `absent` is True if the API server has
        just confirmed that the gang has no pod.
        """
        now, here = time.time(), list(gang.here.values())
        if gang.submission.cancelled and not here:
            return _cancelled(gang) if absent and (not gang.began or self._waited(gang.key) > SETTLE_S) else None
        if gang.submission.allocation and not gang.may_run:
            return self._before_start(gang, now)
        if gang.kept is not None and (gang.broken or gang.submission.step in gang.kept.ended):
            code = gang.kept.ended.get(gang.submission.step, 1)
            late = self._waited(gang.key) > (SETTLE_S if code else RECORD_S)
            end = gang.out_of_memory or taken_away(gang.pods, now, self.away) or _left(gang)
            return self._unless_told(gang, end) if late else None
        found = gang.out_of_memory or taken_away(gang.pods, now, self.away) or self._failed(gang)
        if found is not None:
            return self._unless_told(gang, found) if self._waited(gang.key) > SETTLE_S else None
        if reason := hopeless(here, now):
            return Finished(Outcome.INFEASIBLE, Failure(rank=0, type="KubernetesRefused", message=reason))
        since = half_since(here, gang.size)
        if since is not None and now > since + self._patience:
            return _not_placed(here, gang.size, self._patience)
        if gang.gone.keys() - gang.here.keys() or absent or (here and all(each.over for each in here)):
            return self._unless_told(gang, _vanished(gang, self.events)) if self._waited(gang.key) > RECORD_S else None
        self._since.pop(gang.key, None)
        return None

    def _before_start(self, gang: _Gang, now: float) -> Finished | None:
        """Return how a gang ended that has not started in its allocation; None if it may still start."""
        if gang.submission.cancelled and (gang.kept is None or gang.submission.step in gang.kept.ended):
            return _cancelled(gang)
        if gang.kept is None:
            message = "the folder of its allocation is gone"
            return Finished(Outcome.LOST, Failure(rank=0, type="Forgotten", message=message, consequence=True))
        if (broken := AllocationPods(gang.here, gang.gone).broken(gang.kept.begun, now, self.away)) is not None:
            return broken
        here = list(gang.here.values())
        if reason := hopeless(here, now):
            return Finished(Outcome.INFEASIBLE, Failure(rank=0, type="KubernetesRefused", message=reason))
        since = half_since(here, gang.size)
        late = since is not None and now > since + self._patience
        return _not_placed(here, gang.size, self._patience) if late else None

    def _failed(self, gang: _Gang) -> Finished | None:
        if gang.submission.cancelled:
            return None
        numbers = {each.name: number for number, each in (gang.gone | gang.here).items()}
        began = [*gang.began, *(gang.kept.begun if gang.kept is not None else ())]
        found = failed_launcher(gang.pods, began, numbers)
        own = found is not None and found.failure is not None and not gang.folder.job().staged
        # On a shared disk the output is in a file, so that the pod tells nothing.
        return found._replace(failure=never_launched(gang.folder).failure) if found is not None and own else found

    def _unless_told(self, gang: _Gang, found: Finished) -> Finished:
        """Return how a gang ended: as one of its launchers has recorded it if that is the cause, else `found`.

        `found` is the end derived from the pods. A recorded failure is not the cause if it is a consequence of another
        failure, or if it is a signal and `found` has a failure, as Kubernetes may have sent the signal.
        """
        told = gang.folder.partial_result()
        if told is None or told.failure is None or told.failure.consequence or (by_signal(told) and found.failure):
            return found
        return Finished(OUTCOMES[told.outcome], told.failure, told.problems)

    def _concluded(self, gang: _Gang, end: Finished) -> GangStatus:
        ended = write_submission(gang.folder, gang.submission.ended(*end))
        self._since.pop(gang.key, None)
        assert ended.end is not None
        return GangStatus(key=gang.key, phase="ended", outcome=end.outcome, result=ended.end.result)

    def _waited(self, key: AttemptId) -> float:
        return time.monotonic() - self._since.setdefault(key, time.monotonic())


def _left(gang: _Gang) -> Finished:
    """Return how a gang in an allocation ended whose launchers have exited without writing a result."""
    if gang.submission.cancelled:
        return _cancelled(gang)
    if len(gang.began) == gang.size:
        return Finished(Outcome.LOST)
    if not gang.folder.job().staged:
        return Finished(Outcome.FAILED, never_launched(gang.folder).failure)
    node = min(gang.broken, default=0)
    pod = gang.here.get(node) or gang.gone.get(node)
    name = pod.name if pod is not None else "its pod"
    how = f"a launcher ended with exit code {gang.codes.get(node)} before it had reached the service"
    message = f"{how}; its output is that of {name}"
    problem = NodeProblem(node=pod.node if pod else "", kind="start", reason=f"a launcher in {name} could not begin")
    return Finished(
        Outcome.FAILED,
        Failure(rank=0, type=NO_LAUNCHER, message=message),
        (problem,) if problem.node else (),
    )


def _states(submission: Submission, cached: CachedPods) -> tuple[dict[int, PodState], dict[int, PodState]]:
    """Return two mappings from pod number to pod state: the gang's pods that exist, and those that are deleted."""
    here, gone = (
        {number: pod_state(pod) for number, pod in pods.get(submission.pods, {}).items() if _is_of(submission, pod)}
        for pods in (cached.pods, cached.gone)
    )
    # A pod that is gone has ended, whatever its last state says of its deletion.
    return here, {number: each._replace(deadline=None) for number, each in gone.items() if number not in here}


def _is_of(submission: Submission, pod: Mapping[str, Any]) -> bool:
    return owner_of(pod) == submission.uid


def _cancelled(gang: _Gang) -> Finished:
    """Return how a gang ended that Daylight has cancelled and whose launchers wrote no result."""
    if gang.began:
        return Finished(Outcome.LOST)
    return Finished(Outcome.RELEASED if gang.submission.cancelled == "release" else Outcome.KILLED)


def _not_placed(pods: Collection[PodState], count: int, patience: float) -> Finished:
    message = f"a part of the gang had nodes for {patience:g} s, and the rest found none: {wait_text(pods, count)}"
    return Finished(Outcome.LOST, Failure(rank=0, type=NOT_PLACED, message=message, consequence=True))


def _vanished(gang: _Gang, events: Mapping[str, str]) -> Finished:
    """Return how a gang ended whose pods were deleted, or have all exited, without a result from its launchers.

    The gang is lost, unless Daylight has cancelled it. If pods were deleted, the failure says why, if known: `events`
    has the reasons by pod name.
    """
    if gang.submission.cancelled:
        return _cancelled(gang)
    missing = [each.name for number, each in gang.gone.items() if number not in gang.here]
    if not missing and gang.here:
        return Finished(Outcome.LOST)
    what = f"pod {missing[0]} was" if missing else "its pods were"
    why = gang.submission.ending or next((events[name] for name in missing if events.get(name)), "")
    message = f"{what} deleted in Kubernetes{f': {why}' if why else ''}"
    failure = Failure(rank=0, type="Deleted", message=message, consequence=True)
    return Finished(Outcome.LOST, failure)
