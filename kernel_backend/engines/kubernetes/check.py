"""Check a pool: read rights, nodes and quotas from the API server, and run probe programs in pods on two nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernel_backend.engines.base import CheckContext, EngineUnavailable
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.cluster.nodes import SHARED, PoolNodes
from kernel_backend.engines.kubernetes.cluster.pods import ClusterPods
from kernel_backend.engines.kubernetes.discovery import Admission, Discovery, may
from kernel_backend.engines.kubernetes.manifests import RESOURCE, python
from kernel_backend.engines.kubernetes.probe_findings import TERMS
from kernel_backend.engines.kubernetes.probes import PodProbes
from kernel_backend.engines.kubernetes.refusals import Refused, advice, waits
from kernel_backend.engines.kubernetes.status import PLACEMENT_S
from kernel_backend.engines.probing.findings import ProbeSetup
from kernel_backend.launch.probe import versions
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.resources import Node

# What the engine does, by resource: the guide has a Role with these rights, and a ClusterRole for nodes.
RIGHTS = {
    "pods": ("create", "delete", "get", "list", "watch"),
    "configmaps": ("create", "delete", "get", "list"),
    "secrets": ("create", "get"),
}
_MOST = 2  # nodes that are probed


class Sources(NamedTuple):
    """Objects from which a check of a pool reads the state of the cluster."""

    api: Api
    nodes: PoolNodes
    pods: ClusterPods
    discovery: Discovery
    probes: PodProbes


async def check_pool(home: Path, pool: Pool, context: CheckContext, seen: Sources) -> Sequence[PoolFinding]:
    """Check whether gangs can run in a pool of Kubernetes; return the findings in the order of the checks.

    `seen` has the API client and the caches of nodes, pods and resource types from which the checks read. After a
    failed check, the checks that depend on it are left out.
    """
    found: list[PoolFinding] = []
    try:
        found.append(await _engine(seen.api))
        found.append(await _rights(seen.api))
        known = await seen.nodes.newest()
        found += [_nodes(known, pool), await _others(seen.pods), *await _quotas(seen.api)]
        found += admission_findings(await seen.discovery.newest(), pool.settings)
        if all(each.ok for each in found):
            found += await _probed(home, pool, context, known, seen.probes)
    except EngineUnavailable as error:
        todo = "try again: the pool works as soon as `kubectl get pods` does where the service runs"
        found.append(PoolFinding(name="engine", ok=False, says=error.message, todo=todo))
    except Refused as error:
        found.append(PoolFinding(name="rights", ok=False, says=error.message, todo=advice(error)))
    return found


def admission_findings(admission: Admission, settings: PoolSettings) -> list[PoolFinding]:
    """Return the finding on how the cluster starts a gang's pods together, and one on the pool's queue in Kueue.

    The second is missing if the pool names no queue.
    """
    seconds = f"a part of a gang keeps its nodes for {settings.placement_timeout or PLACEMENT_S:g} s at most"
    says, todo = f"no PodGroup in this cluster: {seconds}", ""
    if admission.podgroups:
        says = f"a PodGroup ({admission.podgroups}) has all pods of a gang start together"
    elif admission.forbidden:
        says = f"there is PodGroup ({admission.forbidden}), which the service may not create: {seconds}"
        todo = "have an admin grant it: the guide about Kubernetes has the rule"
    found = [PoolFinding(name="gangs", ok=True, says=says, todo=todo)]
    if settings.queue and not admission.workloads:
        says = f"the cluster has no Kueue, whose queue {settings.queue} is to admit the gangs"
        found.append(PoolFinding(name="queue", ok=False, says=says, todo="have it installed, or remove `queue`"))
    elif settings.queue:
        says = f"Kueue ({admission.workloads}) admits the gangs, in its queue {settings.queue}"
        found.append(PoolFinding(name="queue", ok=True, says=says))
    return found


async def _probed(
    home: Path, pool: Pool, context: CheckContext, nodes: Sequence[Node], probes: PodProbes
) -> list[PoolFinding]:
    """Run probe programs in pods on two nodes (on one if the pool has no more), and return their findings."""
    if context.probes is None:
        return []
    if not context.urls:
        todo = "give it an address that pods reach: c.Daylight.launchers"
        return [PoolFinding(name="service", ok=False, says="the service has no address for pods", todo=todo)]
    setup = ProbeSetup(
        pool=pool,
        python=python(pool.settings),
        versions=versions(),
        home=str(home),
        checkpoints=context.checkpoints.removeprefix("file://"),
        host="",
        nodes=min(_MOST, sum(node.healthy and not node.drained and node.slots > 0 for node in nodes)),
        gpus=nodes[0].kind != "cpu",
        terms=TERMS,
        data=context.data,
    )
    try:
        return await probes.findings(setup, context.urls, context.probes)
    except Refused as error:
        return [PoolFinding(name="probe", ok=False, says=waits(error), todo=advice(error))]
    except OSError as error:
        says = f"{home}: {error.strerror or error}"
        return [PoolFinding(name="home", ok=False, says=says, todo="make it writable for the service")]


async def _engine(api: Api) -> PoolFinding:
    version = await api.get("/version")
    return PoolFinding(name="engine", ok=True, says=f"Kubernetes {version.get('gitVersion', '')} answers")


async def _rights(api: Api) -> PoolFinding:
    """Return the finding on whether the service has the rights that it needs in the namespace, and which it lacks."""
    namespace = await api.namespace()
    wanted = [(verb, resource) for resource, verbs in RIGHTS.items() for verb in verbs]
    missing = [f"{verb} {resource}" for verb, resource in wanted if not await may(api, verb, resource)]
    if missing:
        todo = "have an admin grant them: the guide about Kubernetes has a Role with all that is used"
        return PoolFinding(name="rights", ok=False, says=f"{namespace}: may not {', '.join(missing)}", todo=todo)
    return PoolFinding(name="rights", ok=True, says=f"may do what it needs in namespace {namespace}")


def _nodes(nodes: Sequence[Node], pool: Pool) -> PoolFinding:
    states = ", ".join(f"{count} {state}" for state, count in Counter(node.state for node in nodes).items())
    slots = sum(node.slots for node in nodes)
    kind = "CPUs" if nodes[0].kind == "cpu" else pool.settings.resource or RESOURCE
    held = sum(holder.slots for node in nodes for holder in node.held_by)
    says = f"{len(nodes)} nodes ({states}), {slots} slots ({kind}){f', {held} held by other pods' if held else ''}"
    usable = any(node.healthy and not node.drained and node.slots for node in nodes)
    todo = "" if usable else "see `kubectl describe nodes`; new gangs start on nodes that are ready and not cordoned"
    if not slots:
        shared = next((f"{node.name}: {node.reason}" for node in nodes if node.state == SHARED), "")
        todo = shared or "set `gpus` to no for slots of CPUs, or change `resource` or `node_selector` of the pool"
    return PoolFinding(name="nodes", ok=usable, says=says, todo=todo)


async def _others(pods: ClusterPods) -> PoolFinding:
    """Return the finding on whether the service may list the pods of all namespaces.

    Without that right it does not know how many slots the pods of other namespaces occupy.
    """
    await pods.changes()
    if pods.everywhere:
        return PoolFinding(name="other pods", ok=True, says="what they hold is known, in all namespaces")
    says = "what those of other namespaces hold is not known: grant list and watch of pods in the whole cluster"
    return PoolFinding(name="other pods", ok=True, says=says)


async def _quotas(api: Api) -> list[PoolFinding]:
    """Return a finding about each quota of the namespace, with how much of it is used.

    Empty if the service has no right to list quotas.
    """
    try:
        items = (await api.get(await api.of("resourcequotas")))["items"]
    except Refused:
        return []
    used = ((each["metadata"]["name"], _used(each.get("status", {}))) for each in items)
    return [PoolFinding(name="quota", ok=True, says=f"{name}: {text}") for name, text in used]


def _used(status: dict[str, Any]) -> str:
    used = status.get("used", {})
    return ", ".join(f"{name} {used.get(name, '0')} of {most}" for name, most in sorted(status.get("hard", {}).items()))
