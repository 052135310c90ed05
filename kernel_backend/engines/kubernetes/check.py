"""Check a pool: ask the API server about it, its rights, nodes and quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kernel_backend.engines.base import CheckContext, EngineUnavailable
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.cluster_pods import ClusterPods
from kernel_backend.engines.kubernetes.manifests import RESOURCE
from kernel_backend.engines.kubernetes.nodes import SHARED, PoolNodes
from kernel_backend.engines.kubernetes.refusals import Refused, advice
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.launch.staging import staging_problem

# What the engine does, by resource: the guide has a Role with these rights, and a ClusterRole for nodes.
RIGHTS = {
    "pods": ("create", "delete", "get", "list", "watch"),
    "configmaps": ("create", "delete", "get", "list"),
    "secrets": ("create", "get"),
}
_KIND = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def check_pool(
    api: Api, pool: Pool, context: CheckContext, nodes: PoolNodes, pods: ClusterPods
) -> Sequence[PoolFinding]:
    """Return what works and what must be changed, in order; later checks are left out after one that has failed."""
    found: list[PoolFinding] = []
    try:
        found += [await _engine(api), await _rights(api), await _nodes(nodes, pool), await _others(pods)]
        found += [*await _quotas(api), _files(pool, context)]
    except EngineUnavailable as error:
        todo = "try again: the pool works as soon as `kubectl get pods` does where the service runs"
        found.append(PoolFinding(name="engine", ok=False, says=error.message, todo=todo))
    except Refused as error:
        found.append(PoolFinding(name="rights", ok=False, says=error.message, todo=advice(error)))
    return found


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


async def _nodes(known: PoolNodes, pool: Pool) -> PoolFinding:
    nodes = await known.newest()
    states = ", ".join(f"{count} {state}" for state, count in Counter(node.state for node in nodes).items())
    slots, kind = (
        sum(node.slots for node in nodes),
        "CPUs" if nodes[0].kind == "cpu" else pool.settings.resource or RESOURCE,
    )
    held = sum(holder.slots for node in nodes for holder in node.held_by)
    says = f"{len(nodes)} nodes ({states}), {slots} slots ({kind}){f', {held} held by other pods' if held else ''}"
    if slots:
        return PoolFinding(name="nodes", ok=True, says=says)
    shared = next((f"{node.name}: {node.reason}" for node in nodes if node.state == SHARED), "")
    todo = shared or "set `gpus` to no for slots of CPUs, or change `resource` or `node_selector` of the pool"
    return PoolFinding(name="nodes", ok=False, says=says, todo=todo)


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


def _files(pool: Pool, context: CheckContext) -> PoolFinding:
    """Return whether pods can have the files of trainings."""
    if pool.settings.shared:
        says = f"the home is on a volume of the pods ({', '.join(pool.settings.volumes)})"
        return PoolFinding(name="files", ok=True, says=says)
    if problem := staging_problem(context.checkpoints):
        return PoolFinding(name="files", ok=False, says="pods do not see the service's files", todo=problem)
    where = ", ".join(context.urls) or "no address"
    says = f"through the service, at {where}; checkpoints in {context.checkpoints}"
    todo = "" if context.urls else "give the service an address that pods reach: `c.Daylight.launchers`"
    return PoolFinding(name="files", ok=bool(context.urls), says=says, todo=todo)
