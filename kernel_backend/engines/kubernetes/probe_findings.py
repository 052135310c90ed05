"""Derive the findings of a check from its pods and from the answers of their probe programs. Pure functions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from kernel_backend.engines.kubernetes.pods import PodState, hopeless, wait_text, way_out
from kernel_backend.engines.probing.findings import EngineTerms, ProbeSetup, node_findings, not_answered, red
from kernel_backend.launch.pod_probe import CUT_OFF
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.launch.probe import NodeProbe

TERMS = EngineTerms(
    engine="Kubernetes",
    versions="build the image of the pool with the versions that the service has",
    leave_out="leave it out: `node_selector` of the pool, or `daylight drain NODE`",
    missing_gpus="look at the device plugin of that node, or leave it out: `node_selector` of the pool",
    unwanted_gpus="set `gpus` of the pool, or choose nodes without GPUs by `node_selector`",
    missing_cpus="look at that node, or lower `cpus_per_slot` of the pool",
)
_REACHED = (
    "let pods reach it (a NetworkPolicy may forbid that), or set c.Daylight.launchers to ADDRESS:PORT that they do"
)


def failed(states: Sequence[PodState]) -> list[PodState]:
    """Return the pods that Kubernetes shows as failed: their probe programs could not run, or ended with an error."""
    return [each for each in states if each.phase == "Failed"]


def findings(
    setup: ProbeSetup, states: Sequence[PodState], probes: Sequence[NodeProbe], started: float, waited: float
) -> list[PoolFinding]:
    """Return the findings of a check: the answers of the probe programs (`probes`), and why other pods did not answer.

    `states` are the states of the pods. `waited` is how many seconds answers were waited for, and `started` the seconds
    from the creation of the pods to the first answer.
    """
    if not probes:
        return list(_silent(setup, states, "the rest was not checked", waited))
    lacking = _silent(setup, states, not_answered(setup, probes), waited) if len(probes) < setup.nodes else ()
    says = f"{started:.1f} s from the creation of the pods to the first answer"
    return [*lacking, *node_findings(setup, probes), PoolFinding(name="start", ok=True, says=says)]


def _silent(setup: ProbeSetup, states: Sequence[PodState], what: str, waited: float) -> Iterator[PoolFinding]:
    """Yield findings on why pods did not answer.

    `what` ends the text of a finding: it says which nodes did not answer, or that the other checks were left out.
    """
    if reason := hopeless(states, time.time()):
        says, _, todo = reason.partition(". To change: ")
        yield red("probe", f"{says}: {what}", todo)
    elif broken := failed(states):
        for each in broken:
            said = (each.about.strip().splitlines() or ["it said nothing"])[-1]
            if CUT_OFF in said:
                yield red("service", f"{each.node} {said}", _REACHED)
            else:
                todo = way_out(each, said) or f"look at that node, or {setup.terms.leave_out}"
                yield red("probe", f"the pod on {each.node} could not run the probe ({said}): {what}", todo)
    elif any(each.phase == "Pending" for each in states) or not states:
        nodes = "no node" if setup.nodes == 1 else f"no {setup.nodes} nodes"
        says = f"{nodes} became free within {waited:.0f} s ({wait_text(states, setup.nodes)}): {what}"
        yield red("probe", says, "try again when nodes are free; or change what the pool requests, as the reason says")
    else:
        names = ", ".join(each.name for each in states)
        yield red("probe", f"{what}: {names} run, and their probes are silent", "look at `kubectl logs` of such a pod")
