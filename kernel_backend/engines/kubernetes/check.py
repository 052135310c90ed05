"""Check a pool: ask the API server about its rights, nodes and quotas, and run a probe in two of its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_backend.engines.base import CheckContext, EngineUnavailable
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.cluster_pods import ClusterPods
from kernel_backend.engines.kubernetes.manifests import RESOURCE, python
from kernel_backend.engines.kubernetes.nodes import SHARED, PoolNodes
from kernel_backend.engines.kubernetes.probe_findings import TERMS
from kernel_backend.engines.kubernetes.probes import PodProbes
from kernel_backend.engines.kubernetes.refusals import Refused, advice, waits
from kernel_backend.engines.probing.findings import ProbeSetup
from kernel_backend.launch.probe import versions
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.resources import Node

# What the engine does, by resource: the guide has a Role with these rights, and a ClusterRole for nodes.
RIGHTS = {
    "pods": ("create", "delete", "get", "list", "watch"),
    "configmaps": ("create", "delete", "get", "list"),
    "secrets": ("create", "get"),
}
_KIND = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MOST = 2  # nodes that are probed


async def check_pool(
    home: Path,
    api: Api,
    pool: Pool,
    context: CheckContext,
    nodes: PoolNodes,
    pods: ClusterPods,
    probes: PodProbes,
) -> Sequence[PoolFinding]:
    """Return what works and what must be changed, in order; later checks are left out after one that has failed."""
    found: list[PoolFinding] = []
    try:
        found.append(await _engine(api))
        found.append(await _rights(api))
        known = await nodes.newest()
        found += [_nodes(known, pool), await _others(pods), *await _quotas(api)]
        if all(each.ok for each in found):
            found += await _probed(home, pool, context, known, probes)
    except EngineUnavailable as error:
        todo = "try again: the pool works as soon as `kubectl get pods` does where the service runs"
        found.append(PoolFinding(name="engine", ok=False, says=error.message, todo=todo))
    except Refused as error:
        found.append(PoolFinding(name="rights", ok=False, says=error.message, todo=advice(error)))
    return found


async def _probed(
    home: Path, pool: Pool, context: CheckContext, nodes: Sequence[Node], probes: PodProbes
) -> list[PoolFinding]:
    """Run the probe in pods on two nodes, on one if there are no more, and return what it has found."""
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
    """Return which rights are missing in the namespace."""
    namespace, missing = await api.namespace(), []
    for resource, verbs in RIGHTS.items():
        for verb in verbs:
            spec = {"resourceAttributes": {"namespace": namespace, "verb": verb, "resource": resource}}
            answer = await api.create(_REVIEW, {**_KIND, "spec": spec})
            if not answer.get("status", {}).get("allowed"):
                missing.append(f"{verb} {resource}")
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
    """Return whether what pods of other namespaces hold is known; trainings run without."""
    await pods.changes()
    if pods.everywhere:
        return PoolFinding(name="other pods", ok=True, says="what they hold is known, in all namespaces")
    says = "what those of other namespaces hold is not known: grant list and watch of pods in the whole cluster"
    return PoolFinding(name="other pods", ok=True, says=says)


async def _quotas(api: Api) -> list[PoolFinding]:
    """Return what is in use of the namespace's quotas; nothing without the right to see them."""
    try:
        items = (await api.get(await api.of("resourcequotas")))["items"]
    except Refused:
        return []
    used = ((each["metadata"]["name"], _used(each.get("status", {}))) for each in items)
    return [PoolFinding(name="quota", ok=True, says=f"{name}: {text}") for name, text in used]


def _used(status: dict[str, Any]) -> str:
    used = status.get("used", {})
    return ", ".join(f"{name} {used.get(name, '0')} of {most}" for name, most in sorted(status.get("hard", {}).items()))
