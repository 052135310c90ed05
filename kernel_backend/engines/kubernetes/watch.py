"""Keep caches of pods up to date: list the pods once, then follow their changes by a watch of the API server.

After a watch was cut, or its resource version is too old, the pods are listed again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.kubernetes.api import Api, Query
from kernel_backend.engines.kubernetes.manifests import GANG, NUMBER, of_pool, selector
from kernel_backend.engines.kubernetes.quantities import seconds
from kernel_backend.engines.kubernetes.refusals import Refused
from kernel_backend.errors import DaylightError

WAIT_S = 2.0  # for a list; then the pods are those last seen
RETRY_S = 1.0
SOON_S = 5.0  # in which a pod begins, where there is room
IDLE_S = 300.0  # after which pods are followed no longer, as those of a pool that was removed
FEW = 5  # gangs that are looked for one by one
KEPT_S = 600.0  # for which the last state of a pod that is gone is known
_log = logging.getLogger(__name__)

Pods = Mapping[str, Mapping[int, dict[str, Any]]]  # by name of the gang's owner, then by number


class PodFollower(ABC):
    """Base class of caches of pods.

    A background task lists the pods and follows their changes, as long as the cache is read from time to time.
    """

    def __init__(self, api: Api, query: Query, what: str) -> None:
        """Create the cache; the query parameters `query` select the pods, and `what` names them in messages."""
        self._api, self._query, self._what = api, query, what
        self._task: asyncio.Task[None] | None = None
        self._listed = asyncio.Event()
        self._asked_at = 0.0
        self.problem = ""  # why there is nothing newer

    async def _ask(self) -> bool:
        """Start the background task unless it runs, and wait up to 2 s for the first list of pods.

        Returns whether the pods have been listed.
        """
        self._asked_at = time.monotonic()
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            self._listed = asyncio.Event()
            self._task = asyncio.create_task(self._forever(), name=f"{self._what} of Kubernetes")
        if not self.problem:
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._listed.wait()
            except TimeoutError:
                self.problem = self.problem or "the API server is slow to answer"
        return self._listed.is_set()

    @abstractmethod
    def _replace(self, pods: Sequence[dict[str, Any]]) -> None:
        """Replace all cached pods by these, from a new list."""

    @abstractmethod
    def _take(self, event: str, pod: dict[str, Any]) -> None:
        """Apply a change from a watch to the cache; `event` is ADDED, MODIFIED or DELETED."""

    async def _path(self) -> str:
        """Return the API path by which the pods are listed."""
        return await self._api.of("pods")

    async def _forever(self) -> None:
        while time.monotonic() < self._asked_at + IDLE_S:
            try:
                path = await self._path()
                pods, version = await self._api.list(path, self._query)
                self._replace(pods)
                self._tell("")
                self._listed.set()
                while time.monotonic() < self._asked_at + IDLE_S:  # the server ends each watch after a minute
                    version = await self._watch(path, version)
            except Refused as error:
                if error.status != 410:  # 410: the version is too old, which a new list cures
                    self._tell(error.message)
                    await asyncio.sleep(RETRY_S)
            except DaylightError as error:
                self._tell(error.message)
                await asyncio.sleep(RETRY_S)

    async def _watch(self, path: str, version: str) -> str:
        """Apply the changes after the resource version `version`, until the server ends the watch.

        Returns the newest resource version that the server has sent, from which the next watch continues.
        """
        query = {**self._query, "resourceVersion": version, "allowWatchBookmarks": "true"}
        async for event in self._api.watch(path, query):
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._take(event["type"], event["object"])
        return version

    def _tell(self, problem: str) -> None:
        if bool(problem) != bool(self.problem):
            _log.warning(
                "%s of Kubernetes %s", self._what, f"stay as last seen: {problem}" if problem else "are known again"
            )
        self.problem = problem


class CachedPods(NamedTuple):
    """Pods of a pool as of the last list or change, and the last states of deleted ones.

    Both mappings have the pods by the name of the ConfigMap that owns them (one for each gang), then by node number.
    """

    pods: Pods = MappingProxyType({})
    gone: Pods = MappingProxyType({})
    problem: str = ""  # why there is nothing newer


class PodCache(PodFollower):
    """Cache of the pods that belong to a pool's gangs and checks."""

    def __init__(self, api: Api, service: str, pool: str) -> None:
        super().__init__(api, {"labelSelector": selector(of_pool(service, pool))}, f"pods of pool {pool}")
        self._pods, self._gone = dict[str, dict[str, Any]](), dict[str, tuple[float, dict[str, Any]]]()

    async def cached(self) -> CachedPods:
        """Return the pods as they were last seen; raise EngineUnavailable if they could never be listed."""
        if not await self._ask() and not self._pods and self.problem:
            raise EngineUnavailable(f"Kubernetes: {self.problem.removeprefix('Kubernetes: ')}")
        old = time.monotonic() - KEPT_S
        self._gone = {name: each for name, each in self._gone.items() if each[0] > old}
        return CachedPods(
            _by_gang(self._pods), _by_gang({name: pod for name, (_, pod) in self._gone.items()}), self.problem
        )

    async def fresh(self, gang: str) -> Mapping[int, dict[str, Any]]:
        """Return the pods of a gang by number, as the API server lists them now; raise EngineUnavailable or Refused.

        `gang` is the name of the ConfigMap that owns the pods.
        """
        pods, _ = await self._api.list(await self._api.of("pods"), {"labelSelector": f"{GANG}={gang}"})
        return _by_gang({each["metadata"]["name"]: each for each in pods}).get(gang, {})

    async def listed(self) -> Sequence[dict[str, Any]]:
        """Return all pods of the pool as the API server lists them now; raise EngineUnavailable or Refused."""
        return (await self._api.list(await self._api.of("pods"), self._query))[0]

    async def absent(self, gangs: Collection[str]) -> set[str]:
        """Return those of `gangs` that have no pod in the API server now; raise EngineUnavailable or Refused.

        Each is the name of the ConfigMap that owns the gang's pods. For many gangs all pods of the pool are listed
        once, which is faster than a request for each gang.
        """
        if len(gangs) <= FEW:
            return {name for name in gangs if not await self.fresh(name)}
        return set(gangs) - {each["metadata"].get("labels", {}).get(GANG) for each in await self.listed()}

    def _replace(self, pods: Sequence[dict[str, Any]]) -> None:
        new = {each["metadata"]["name"]: each for each in pods}
        for name in self._pods.keys() - new.keys():
            self._gone[name] = time.monotonic(), self._pods[name]
        self._pods = new

    def _take(self, event: str, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        if event == "DELETED":
            self._pods.pop(name, None)
            self._gone[name] = time.monotonic(), pod
        else:
            self._pods[name] = pod


def waiting_pods(pods: Pods, now: float) -> list[str]:
    """Return the names of pods that have been pending for more than 5 s, one pod of each gang.

    `now` is in seconds since the epoch.
    """
    found = []
    for gang in pods.values():
        old = (
            each
            for each in gang.values()
            if each.get("status", {}).get("phase") == "Pending" and _age(each, now) > SOON_S
        )
        found += [each["metadata"]["name"] for each in list(old)[:1]]
    return found


def taken_pods(cached: CachedPods, gangs: Collection[str]) -> list[str]:
    """Return the names of those pods of the given gangs that were deleted, or are being deleted.

    `gangs` has the names of the ConfigMaps that own the gangs' pods.
    """
    found = []
    for name in gangs:
        going = (pod for pod in cached.pods.get(name, {}).values() if pod["metadata"].get("deletionTimestamp"))
        found += [pod["metadata"]["name"] for pod in (*going, *cached.gone.get(name, {}).values())]
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
