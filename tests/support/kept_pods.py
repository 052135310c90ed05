"""Simulate the pods that searches keep, without a cluster: a namespace in memory, and the part of the engine for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernel_backend.engines.folders import GangFolders
from kernel_backend.engines.kubernetes.allocated_gangs import ClusterView, PodAllocatedGangs, PodServices
from kernel_backend.engines.kubernetes.allocations import PodAllocation
from kernel_backend.engines.kubernetes.manifests import GangName, Identity, Manifest
from kernel_backend.engines.kubernetes.submission import Submission, read_submission, write_submission
from kernel_backend.engines.kubernetes.watch import CachedPods
from kernel_backend.model.cluster.pools import read_pool
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.holder import HolderEvent, HolderOrders, HolderReport
from kernel_backend.model.launch.launch_spec import LaunchSpec, token_digest
from tests.support.builders import share

POOL = read_pool("cloud", {"engine": "kubernetes", "image": "i"})


class Namespace:
    """Namespace of a cluster that has only the objects of allocations; each pod runs as soon as it is created."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[int, Manifest]] = {}  # by owner, then by number
        self.created = 0

    async def create(self, owner: Manifest, others: list[Manifest]) -> str:
        """Create the pods among these objects; return the uid of their owner."""
        self.created += 1
        uid, pods = f"u{self.created}", [each for each in others if each["kind"] == "Pod"]
        reference = {"uid": uid, "kind": "ConfigMap"}
        self.pods[owner["metadata"]["name"]] = {
            number: {
                **pod,
                "metadata": pod["metadata"] | {"ownerReferences": [reference]},
                "spec": pod["spec"] | {"nodeName": f"n{number}"},
                "status": {"phase": "Running"},
            }
            for number, pod in enumerate(pods)
        }
        return uid

    async def remove(self, owner: str) -> None:
        """Delete an owner with its pods."""
        self.pods.pop(owner, None)

    async def end(self, pods: Iterable[Manifest], grace: int) -> None:
        """Kill pods."""
        for pod in pods:
            pod["status"]["phase"] = "Failed"

    async def fresh(self, owner: str) -> Mapping[int, Manifest]:
        """Return the pods of an owner by number."""
        return self.pods.get(owner, {})

    async def newest(self) -> SimpleNamespace:
        """Return that the cluster has no PodGroups."""
        return SimpleNamespace(podgroups="")


class KeptPods:
    """Gangs of a service in kept pods, with methods that do what the cluster, the holders and the service do."""

    def __init__(self, home: Path, namespace: Namespace | None = None, urls: tuple[str, ...] = (), **pool: Any) -> None:
        self.home, self.namespace, self.folders = home, namespace or Namespace(), GangFolders(home, "cloud")
        self._urls, self._pool = urls, POOL.model_copy(update={"settings": POOL.settings.model_copy(update=pool)})
        self.restart()

    def restart(self) -> None:
        """Start another process of the service."""
        parts: Any = self.namespace
        services = PodServices(parts, parts, parts, Identity(1000, 1000))
        self.kept = PodAllocatedGangs(self.home, self._pool, "5f", self.folders, services)

    def place(self, trial: int = 1, nodes: int = 1) -> Submission:
        """Submit the gang of a trial, or submit it again; return its record."""
        return asyncio.run(self.placed(trial, nodes))

    async def placed(self, trial: int = 1, nodes: int = 1) -> Submission:
        """Submit the gang of a trial, or submit it again; return its record."""
        spec = LaunchSpec(
            experiment=1,
            trial=trial,
            attempt=1,
            config=Config(slots=nodes),
            params={},
            placement=tuple(share((0,), f"any{node}") for node in range(nodes)),
            python="python3",
            cwd="/",
            code="/code",
            snapshot="0" * 64,
            checkpoints="/checkpoints",
            home=str(self.home),
            pool="cloud",
            service_urls=self._urls,
            keep_allocation=3600.0,
            staged=True,
        )
        folder, token = self.folders.of(spec.id), f"token of {spec.id}"
        folder.prepare(spec, token)
        self.folders.mark(spec.id)
        name = GangName("5f", "cloud", spec.id, token_digest(token)).owner
        submission = read_submission(folder) or write_submission(folder, Submission(name=name, at=1.0))
        self.kept.shown()  # reads what an earlier process has left
        return await self.kept.place(spec, folder, submission)

    def gang(self, trial: int = 1) -> Submission:
        """Return the record of the gang of a trial."""
        found = read_submission(self.folders.of(AttemptId(1, trial, 1)))
        assert found is not None
        return found

    def held(self, submission: Submission) -> PodAllocation:
        """Return the allocation of a gang."""
        found = self.kept.known_to(submission)
        assert found is not None
        return found

    def tell(self, held: PodAllocation, *events: Any, key: str = "", node: int = 0, orders: int = 0) -> HolderOrders:
        """Report events as the holder of a node does; return its orders."""
        found = tuple(HolderEvent(event=each, at=time.time(), key=key) for each in events)
        report = HolderReport(node=node, events=found, orders=orders)
        return asyncio.run(self.kept.report(held.record.id, report))

    def round(self) -> None:
        """Look after the allocations, as the service does in each round."""
        pods = self.namespace.pods
        absent = [name for name in self.kept.created if name not in pods]
        asyncio.run(self.kept.tend(ClusterView(CachedPods(pods), absent, (), {})))
