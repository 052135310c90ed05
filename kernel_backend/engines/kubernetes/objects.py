"""Create and delete the Kubernetes objects of gangs and checks; a call that was interrupted can be repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.kubernetes import manifests
from kernel_backend.engines.kubernetes.admission import PODGROUPS
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.manifests import Manifest
from kernel_backend.engines.kubernetes.pods import is_lost, pod_state
from kernel_backend.engines.kubernetes.refusals import Refused

AT_ONCE_S = 1  # grace period of a killed pod: with 0 its object would vanish before its processes
_WITH_OWNED = {"propagationPolicy": "Background"}  # Kubernetes deletes what the owner owns
_PATHS = {"ConfigMap": "configmaps", "Secret": "secrets", "Pod": "pods", "PodGroup": PODGROUPS}  # by kind


class GangObjects:
    """Client that creates, lists and deletes the Kubernetes objects of a pool: ConfigMaps, Secrets and pods.

    The objects belong to gangs, to allocations, or to checks (which run probe programs in pods to test the pool).
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def create(self, owner: Manifest, others: Sequence[Manifest]) -> str:
        """Create the ConfigMap `owner` and the objects `others`, which it will own, unless they exist; return its uid.

        Raises Refused if an object is refused; all of them are then deleted. Raises EngineUnavailable if there is no
        answer; it is then not known which of them exist.
        """
        made = await self._make(owner)
        uid = str(made["metadata"]["uid"])
        try:
            for each in others:
                found = await self._make(manifests.owned(each, owner | {"metadata": made["metadata"]}))
                if owner_of(found) != uid or found["metadata"].get("deletionTimestamp"):
                    raise EngineUnavailable("Kubernetes: objects of an earlier try are still ending")
        except Refused:
            await self.remove(owner["metadata"]["name"])
            raise
        return uid

    async def end(self, pods: Iterable[Mapping[str, Any]], grace: int) -> None:
        """Delete pods: Kubernetes sends SIGTERM to their launchers, and SIGKILL `grace` seconds later."""
        for pod in pods:
            options = {"gracePeriodSeconds": grace, "preconditions": {"uid": pod["metadata"]["uid"]}}
            try:
                await self._api.delete(await self._api.of("pods", pod["metadata"]["name"]), options)
            except Refused as error:
                if error.status != 409:  # 409: it is another pod of this name
                    raise

    async def remove(self, owner: str) -> None:
        """Delete the ConfigMap of this name; Kubernetes then deletes the Secret and the pods that it owns."""
        await self._api.delete(await self._api.of("configmaps", owner), _WITH_OWNED)

    async def owners(self, labels: Mapping[str, str]) -> list[Manifest]:
        """Return the ConfigMaps with these labels, each of which owns the objects of a gang or a check."""
        query = {"labelSelector": manifests.selector(labels)}
        return list((await self._api.get(await self._api.of("configmaps"), query))["items"])

    async def _make(self, manifest: Manifest) -> Manifest:
        """Create an object and return it; if an object of this name exists already, return that one."""
        kind, version = _PATHS[manifest["kind"]], manifest["apiVersion"]
        try:
            return await self._api.create(await self._api.of(kind, version=version), manifest)
        except Refused as error:
            if error.status != 409 or error.reason != "AlreadyExists":
                raise
        try:
            return await self._api.get(await self._api.of(kind, manifest["metadata"]["name"], version))
        except Refused as error:
            if error.status != 404:
                raise
            raise EngineUnavailable(f"Kubernetes: {manifest['metadata']['name']} was deleted meanwhile") from None


def owner_of(pod: Mapping[str, Any]) -> str:
    """Return the uid of a pod's owner; "" if it has none."""
    return next((str(each["uid"]) for each in pod["metadata"].get("ownerReferences") or []), "")


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the name of the node on which a pod runs; "" until it is scheduled."""
    return str(pod.get("spec", {}).get("nodeName") or "")


def alive(pods: Iterable[Manifest], now: float, away: Collection[str]) -> list[Manifest]:
    """Return the pods whose processes may still run, without pods on lost nodes.

    `away` has the names of the nodes that are not ready. Processes on a lost node may in fact still run; that does no
    harm, as the service refuses their checkpoints.
    """
    states = ((pod, pod_state(pod)) for pod in pods)
    return [pod for pod, state in states if not state.over and not is_lost(state, now, away)]
