"""Keep the pods of a pool in memory by a list and a watch; list again where a watch was cut or is too old."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.manifests import GANG, NUMBER, of_pool, selector
from kernel_backend.engines.kubernetes.quantities import seconds
from kernel_backend.engines.kubernetes.refusals import Refused
from kernel_backend.errors import DaylightError

WAIT_S = 2.0  # for a list; then the pods are those last seen
RETRY_S = 1.0
SOON_S = 5.0  # in which a pod begins, where there is room
IDLE_S = 300.0  # after which pods are followed no longer, as those of a pool that was removed
KEPT_S = 600.0  # for which the last state of a pod that is gone is known
_log = logging.getLogger(__name__)

Pods = Mapping[str, Mapping[int, dict[str, Any]]]  # by name of the gang's owner, then by number


class CachedPods(NamedTuple):
    """Pods of a pool as last seen, with the last state of those that are gone."""

    pods: Pods = MappingProxyType({})
    gone: Pods = MappingProxyType({})
    problem: str = ""  # why there is nothing newer


class PodCache:
    """Cache of a pool's pods; a task follows them while anybody asks."""

    def __init__(self, api: Api, service: str, pool: str) -> None:
        self._api, self._query = api, {"labelSelector": selector(of_pool(service, pool))}
        self._pods, self._gone = dict[str, dict[str, Any]](), dict[str, tuple[float, dict[str, Any]]]()
        self._task: asyncio.Task[None] | None = None
        self._listed = asyncio.Event()
        self._problem, self._asked_at = "", 0.0

    async def cached(self) -> CachedPods:
        """Return the pods as last seen; raises EngineUnavailable if they have never been listed."""
        self._asked_at = time.monotonic()
        self._follow()
        try:
            async with asyncio.timeout(WAIT_S):
                await self._listed.wait()
        except TimeoutError:
            self._problem = self._problem or "the API server is slow to answer"
        if not self._listed.is_set() and not self._pods and self._problem:
            raise EngineUnavailable(f"Kubernetes: {self._problem.removeprefix('Kubernetes: ')}")
        old = time.monotonic() - KEPT_S
        self._gone = {name: each for name, each in self._gone.items() if each[0] > old}
        return CachedPods(
            _by_gang(self._pods), _by_gang({name: pod for name, (_, pod) in self._gone.items()}), self._problem
        )

    async def fresh(self, gang: str) -> Mapping[int, dict[str, Any]]:
        """Return the pods of a gang as the API server lists them now; raises EngineUnavailable and Refused."""
        listed = await self._api.get(await self._api.of("pods"), {"labelSelector": f"{GANG}={gang}"})
        return _by_gang({each["metadata"]["name"]: each for each in listed["items"]}).get(gang, {})

    def _follow(self) -> None:
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            self._listed = asyncio.Event()
            self._task = asyncio.create_task(self._forever(), name="pods of Kubernetes")

    async def _forever(self) -> None:
        while time.monotonic() < self._asked_at + IDLE_S:
            try:
                version = await self._list()
                await self._watch(version)
            except Refused as error:
                if error.status != 410:  # 410: the version is too old, which a new list cures
                    self._tell(error.message)
                    await asyncio.sleep(RETRY_S)
            except DaylightError as error:
                self._tell(error.message)
                await asyncio.sleep(RETRY_S)

    async def _list(self) -> str:
        listed = await self._api.get(await self._api.of("pods"), self._query)
        new = {each["metadata"]["name"]: each for each in listed["items"]}
        for name in self._pods.keys() - new.keys():
            self._gone[name] = time.monotonic(), self._pods[name]
        self._pods = new
        self._tell("")
        self._listed.set()
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> None:
        query = {**self._query, "resourceVersion": version, "allowWatchBookmarks": "true"}
        async for event in self._api.watch(await self._api.of("pods"), query):
            pod, name = event["object"], event["object"]["metadata"].get("name", "")
            if event["type"] == "DELETED":
                self._pods.pop(name, None)
                self._gone[name] = time.monotonic(), pod
            elif event["type"] != "BOOKMARK":
                self._pods[name] = pod

    def _tell(self, problem: str) -> None:
        if bool(problem) != bool(self._problem):
            _log.warning("the states of pods %s", f"stay as last seen: {problem}" if problem else "are known again")
        self._problem = problem


def waiting_pods(pods: Pods, now: float) -> list[str]:
    """Return the names of the first pod of each gang that has waited for longer than pods usually do."""
    found = []
    for gang in pods.values():
        old = (
            each
            for each in gang.values()
            if each.get("status", {}).get("phase") == "Pending" and _age(each, now) > SOON_S
        )
        found += [each["metadata"]["name"] for each in list(old)[:1]]
    return found


def _age(pod: Mapping[str, Any], now: float) -> float:
    return now - (seconds(pod["metadata"].get("creationTimestamp")) or now)


def _by_gang(pods: Mapping[str, dict[str, Any]]) -> dict[str, dict[int, dict[str, Any]]]:
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for pod in pods.values():
        labels = pod["metadata"].get("labels", {})
        if labels.get(GANG) and labels.get(NUMBER, "").isdigit():
            found.setdefault(labels[GANG], {})[int(labels[NUMBER])] = pod
    return found
