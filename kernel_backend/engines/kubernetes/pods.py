"""Read the states of pods from API objects; derive why a gang waits, and how it ended. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kernel_backend.engines.kubernetes.quantities import seconds
from kernel_backend.model.launch.staging import UNHEARD
from kernel_backend.model.reports import NodeProblem
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import OUT_OF_MEMORY, Failure

OVERDUE_S = 15.0  # after its grace period from which a deleted pod counts as lost with its node
IMAGE_S = 60.0  # for which an image that cannot be pulled is waited for
_NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"})
_NO_CONTAINER = frozenset({"CreateContainerConfigError", "CreateContainerError"})
_BAD = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_CANNOT_RUN = frozenset({"StartError", "ContainerCannotRun"})
_NODE_GONE = frozenset(
    {"NodeLost", "DeletionByTaintManager", "DeletionByPodGC", "Shutdown", "NodeShutdown", "Terminated"}
)
_PREEMPTED = frozenset({"Preempting", "Preempted", "PreemptionByScheduler"})
_OF_OURS = ("shm", "emptydir", "ephemeral local storage")  # words of an eviction for what the pod itself has used


NO_EVENTS: Mapping[str, str] = {}


class PodState(NamedTuple):
    """State of a pod, read from the newest API object of it."""

    name: str
    phase: str  # Pending, Running, Succeeded, Failed
    node: str  # "" until it is scheduled
    scheduled_at: float | None  # None until it is scheduled
    unschedulable: str  # why the scheduler finds no node; "" if it has found one, or has not looked yet
    gates: tuple[str, ...]  # scheduling gates, which keep the scheduler from looking, as Kueue's
    waiting: str  # why its container has not begun, such as `ImagePullBackOff`
    about: str  # message next to `waiting`, or that of its end
    exit_code: int | None
    ended_as: str  # reason of its end: of the container, such as `OOMKilled`, or of the pod, such as `Evicted`
    disrupted: str  # why Kubernetes itself ends it, such as `PreemptionByScheduler`
    deleted: bool  # by another program or user, so that its launcher was asked to leave
    deadline: float | None  # until which a deleted pod may run; None if it was not deleted, or is gone
    memory: str  # its limit of memory; "" without one

    @property
    def over(self) -> bool:
        """Return whether the pod's container has ended and will not restart."""
        return self.phase in ("Succeeded", "Failed")


class Finished(NamedTuple):
    """End of a gang: its outcome, the failure that caused the end, and faults of nodes."""

    outcome: Outcome
    failure: Failure | None = None
    problems: tuple[NodeProblem, ...] = ()


def pod_state(pod: Mapping[str, Any]) -> PodState:
    """Return the state of a pod, read from its API object."""
    metadata, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions") or []}
    scheduled, disruption = conditions.get("PodScheduled", {}), conditions.get("DisruptionTarget", {})
    state: Mapping[str, Any] = next((each.get("state", {}) for each in status.get("containerStatuses") or []), {})
    ended, waiting = state.get("terminated") or {}, state.get("waiting") or {}
    gates = tuple(each["name"] for each in spec.get("schedulingGates") or [])
    unschedulable = scheduled.get("message", "") if scheduled.get("status") == "False" and not gates else ""
    container = (spec.get("containers") or [{}])[0]
    return PodState(
        name=metadata["name"],
        phase=status.get("phase", "Pending"),
        node=spec.get("nodeName", ""),
        scheduled_at=seconds(scheduled.get("lastTransitionTime")) if spec.get("nodeName") else None,
        unschedulable=unschedulable,
        gates=gates,
        waiting=waiting.get("reason", ""),
        about=str(ended.get("message") or waiting.get("message") or status.get("message") or ""),
        exit_code=ended.get("exitCode"),
        ended_as=_ended_as(status.get("reason", ""), ended.get("reason", "")),
        disrupted=disruption.get("reason", "") if disruption.get("status") == "True" else "",
        deleted=bool(metadata.get("deletionTimestamp")),
        deadline=seconds(metadata.get("deletionTimestamp")),
        memory=str(container.get("resources", {}).get("limits", {}).get("memory", "")),
    )


def _ended_as(of_pod: str, of_container: str) -> str:
    return of_container if of_container == "OOMKilled" or not of_pod else of_pod


def is_lost(pod: PodState, now: float, away: Collection[str]) -> bool:
    """Return whether a deleted pod counts as lost, since its node is gone and its processes cannot be ended.

    That is so if the node is not ready (its name is in `away`), or if the pod still exists long after its grace period.
    """
    if pod.over or pod.deadline is None:
        return False
    return pod.node in away or now > pod.deadline + OVERDUE_S or pod.ended_as == "NodeLost"


def half_since(pods: Collection[PodState], count: int) -> float | None:
    """Return since when some of a gang's `count` pods have nodes while others cannot be scheduled.

    The result is in seconds since the epoch; None if no pod has a node, all have one, or none is unschedulable.
    """
    placed = [each.scheduled_at for each in pods if each.scheduled_at is not None]
    return min(placed) if placed and len(placed) < count and any(each.unschedulable for each in pods) else None


def wait_text(pods: Collection[PodState], count: int, events: Mapping[str, str] = NO_EVENTS) -> str:
    """Return a text for users on why a gang of `count` pods has not started yet, with Kubernetes' own reason.

    `events` has texts from Kubernetes' events and from Kueue, by name of the pod.
    """
    placed = sum(bool(each.node) for each in pods)
    part = f"{placed} of {count} pods have a node; " if 0 < placed < count else ""
    for each in pods:
        if told := events.get(each.name):
            return told if told.startswith("Kueue: ") else f"Kubernetes: {part}{told}"
        if each.unschedulable:
            return f"Kubernetes: {part}{each.unschedulable}"
        if each.gates:
            return f"Kubernetes: its pods wait for their scheduling gates ({', '.join(each.gates)})"
        if each.waiting and each.waiting != "ContainerCreating":
            return f"Kubernetes: {each.waiting}: {each.about}".removesuffix(": ")
    creating = sorted(each.node for each in pods if each.node and each.phase == "Pending")
    return (
        f"Kubernetes: {part}containers are being created on {', '.join(creating)}"
        if creating
        else "Kubernetes: submitted"
    )


def hopeless(pods: Collection[PodState], now: float) -> str:
    """Return why a gang can never start with the pool's present settings, such as a wrong image; "" if it may start."""
    for each in pods:
        tried = each.scheduled_at is not None and now > each.scheduled_at + IMAGE_S
        if each.waiting in _BAD or (each.waiting in _NO_IMAGE | _NO_CONTAINER and tried):
            own = "change the settings of the pool"
            what = own if each.waiting in _NO_CONTAINER else "change `image` of the pool, or let its account pull it"
            return f"Kubernetes: {each.waiting}: {each.about}. To change: {what}"
    return ""


def out_of_memory(pods: Collection[PodState]) -> Finished | None:
    """Return how a gang ended, one of whose containers was killed for using too much memory; None if none was."""
    for each in pods:
        if each.ended_as == "OOMKilled":
            limit = f"its limit of {each.memory}" if each.memory else "its node had"
            message = f"pod {each.name} used more memory than {limit}: raise `memory_per_slot` of the pool"
            return Finished(Outcome.FAILED, Failure(rank=0, type=OUT_OF_MEMORY, message=message))
    return None


def taken_away(pods: Collection[PodState], now: float, away: Collection[str]) -> Finished | None:
    """Return how a gang ended that lost a pod; None if it lost none.

    Kubernetes may have evicted or preempted the pod, its node may have refused it, or the node is lost. `away` has the
    names of the nodes that are not ready.
    """
    for each in pods:
        where = each.node or "its node"
        leaves = each.deadline is not None and not each.over  # it may still save a checkpoint
        if not leaves and {each.disrupted, each.ended_as} & _PREEMPTED:
            return _lost("Preempted", f"Kubernetes preempted pod {each.name} on {where}. {each.about}")
        if each.ended_as == "Evicted":
            own = any(word in each.about.lower() for word in _OF_OURS)
            message = f"Kubernetes evicted pod {each.name} from {where}: {each.about}"
            if own:
                way_out = "write less to the pod's own disk, or raise `shm_gb` of the pool"
                failure = Failure(rank=0, type="Evicted", message=f"{message.rstrip('. ')}: {way_out}")
                return Finished(Outcome.FAILED, failure)
            return _lost("Evicted", message)
        if is_lost(each, now, away) or (not leaves and {each.ended_as, each.disrupted} & _NODE_GONE):
            problem = NodeProblem(node=each.node, kind="lost", reason=f"Kubernetes lost it (pod {each.name})")
            found = _lost("NodeLost", f"Kubernetes lost node {where} of pod {each.name}. {each.about}")
            return found._replace(problems=(problem,) if each.node else ())
        if each.phase == "Failed" and each.exit_code is None and each.ended_as:
            return _lost("Refused", f"node {where} refused pod {each.name} ({each.ended_as}): {each.about}")
    return None


def taken_by(pods: Collection[PodState], events: Mapping[str, str]) -> str:
    """Return why Kubernetes itself ended a pod of a gang, from the pod's conditions or from an event.

    "" if neither says so. `events` has texts from events, by name of the pod.
    """
    for each in pods:
        if each.disrupted or events.get(each.name):
            why = events.get(each.name) or f"{each.disrupted}. {each.about}".strip().removesuffix(".")
            return f"Kubernetes ended pod {each.name} on {each.node or 'its node'}: {why}"
    return ""


def failed_launcher(pods: Collection[PodState], began: Collection[int], numbers: Mapping[str, int]) -> Finished | None:
    """Return how a gang ended, one of whose launchers failed or could not start; None if no launcher did.

    `began` has the numbers of the nodes whose launchers have started, `numbers` the node number of each pod, by name.
    """
    for each in pods:
        if each.phase != "Failed" or each.exit_code in (None, 0) or each.deleted:
            continue
        if numbers[each.name] in began:
            return Finished(Outcome.LOST)
        said = (each.about.strip().splitlines() or ["it said nothing"])[-1]
        message = (
            f"pod {each.name} could not launch the ranks ({said}){f': {todo}' if (todo := way_out(each, said)) else ''}"
        )
        problem = NodeProblem(node=each.node, kind="start", reason=f"the launcher of pod {each.name} could not begin")
        failure = Failure(rank=0, type="LauncherFailed", message=message)
        return Finished(Outcome.FAILED, failure, (problem,) if each.node else ())
    return None


def way_out(pod: PodState, said: str) -> str:
    """Return advice on why a pod could not run its program, "" if there is none.

    `said` is the last line of the pod's output.
    """
    if "No module named" in said:
        return "install daylight into the image of the pool"
    if UNHEARD in said:
        return "let pods reach the service: check `c.Daylight.launchers` and network policies"
    if pod.ended_as in _CANNOT_RUN or pod.exit_code in (126, 127):
        return "change `image` or `python` of the pool"
    return ""


def _lost(kind: str, message: str) -> Finished:
    failure = Failure(rank=0, type=kind, message=message.strip().removesuffix(":"), consequence=True)
    return Finished(Outcome.LOST, failure)
