"""Run nodes of a real Kubernetes for tests: kubelets that run their pods as processes of this machine."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.kubernetes_admin import Admin, Manifest
from tests.support.pod_processes import PodProcesses, Report, is_over, stamp

TICK_S = 0.05
RENEW_S = 1.0
PATIENCE_S = 60.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_PODS = "/api/v1/pods"


class KubeletNodes:
    """Kubelets of some nodes, in a thread; tests call their methods from another thread."""

    def __init__(self, admin: Admin, folder: Path) -> None:
        self.admin, self._processes = admin, PodProcesses(folder)
        self.lost = set[str]()  # nodes whose kubelet is cut off; their processes run on
        self._names = list[str]()
        self._pods = dict[str, Manifest]()  # by uid, those of these nodes
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._begun = threading.Event()

    def add(self, name: str, cpus: int = 8, gpus: int = 0, labels: dict[str, str] | None = None) -> None:
        """Register a node, and wait until pods can run on it."""
        offered = {"cpu": str(cpus), "memory": "64Gi", "pods": "110", "ephemeral-storage": "64Gi"}
        offered |= {"nvidia.com/gpu": str(gpus)} if gpus else {}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]
        status = {"capacity": offered, "allocatable": offered, "addresses": addresses, "conditions": [_ready()]}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
        self.admin.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name},
            "spec": _held(name),
        }
        self.admin.create(_LEASES, lease)
        self._names.append(name)
        until(lambda: not self.admin.get(f"nodes/{name}")["spec"].get("taints"), f"node {name} is ready")

    def lose(self, name: str) -> None:
        """Disconnect the kubelet of a node, and kill all processes there."""
        self.lost.add(name)
        for pod in self.admin.list(_PODS):
            if pod["spec"].get("nodeName") == name:
                self._processes.kill(pod)

    def find(self, name: str) -> None:
        """Reconnect the kubelet of a lost node."""
        self.lost.discard(name)

    def cordon(self, name: str, cordoned: bool = True) -> None:
        """Mark a node as unschedulable, like `kubectl cordon`."""
        self.admin.change(f"nodes/{name}", {"spec": {"unschedulable": cordoned}})

    def press(self, pod: Manifest, message: str) -> None:
        """Evict a pod, like a kubelet whose node lacks a resource."""

        async def evict() -> Report:
            return self._processes.evict(pod, message)

        report = asyncio.run_coroutine_threadsafe(evict(), self._loop).result(PATIENCE_S)
        self.admin.change(f"{_path(pod)}/status", {"status": report.status})

    @contextlib.contextmanager
    def running(self) -> Iterator[KubeletNodes]:
        """Run the kubelets during the block; then end all pods and delete the nodes."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        assert self._begun.wait(PATIENCE_S)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(PATIENCE_S)
            for pod in self.admin.list(_PODS):  # those that wait as well, which would come onto the next test's nodes
                self.admin.delete(_path(pod), gracePeriodSeconds=0)
            for name in self._names:
                self.admin.delete(f"nodes/{name}")
                self.admin.delete(f"{_LEASES}/{name}")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        headers = {"Authorization": f"Bearer {self.admin.token}"}
        connector = aiohttp.TCPConnector(ssl=self.admin.tls)
        async with aiohttp.ClientSession(self.admin.url, headers=headers, connector=connector) as self._http:
            jobs = [asyncio.create_task(_forever(job)) for job in (self._follow, self._tend_all, self._renew)]
            self._begun.set()
            await self._stop.wait()
            for each in jobs:
                each.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            self._processes.close()

    async def _follow(self) -> None:
        """Keep the cached pods up to date by a list and a watch."""
        listed = await self._call("GET", _PODS)
        self._pods = {each["metadata"]["uid"]: each for each in listed["items"] if self._is_mine(each)}
        query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"], "timeoutSeconds": "60"}
        async with self._http.get(_PODS, params=query, timeout=aiohttp.ClientTimeout(total=90)) as response:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                pod = event["object"]
                if event["type"] == "DELETED":
                    self._pods.pop(pod["metadata"]["uid"], None)
                elif self._is_mine(pod):
                    self._pods[pod["metadata"]["uid"]] = pod

    def _is_mine(self, pod: Manifest) -> bool:
        return pod["spec"].get("nodeName") in self._names

    async def _tend_all(self) -> None:
        await asyncio.sleep(TICK_S)
        for pod in list(self._pods.values()):
            if pod["spec"]["nodeName"] not in self.lost:
                await self._tend(pod)

    async def _tend(self, pod: Manifest) -> None:
        new = self._processes.is_new(pod)
        report = self._processes.advance(pod, await self._environment(pod) if new else {})
        if report is None:
            return
        if report.status and not is_over(pod):
            await self._call("PATCH", f"/api/v1/{_path(pod)}/status", {"status": report.status})
        if report.gone:
            self._pods.pop(pod["metadata"]["uid"], None)
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
            await self._call(
                "DELETE", f"/api/v1/{_path(pod)}", {"apiVersion": "v1", "kind": "DeleteOptions", **options}
            )

    async def _environment(self, pod: Manifest) -> dict[str, str]:
        variables = pod["spec"]["containers"][0].get("env", [])
        return {each["name"]: await self._value(each, pod) for each in variables}

    async def _value(self, variable: Manifest, pod: Manifest) -> str:
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            return str(pod["spec"]["nodeName"])
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{reference['name']}"
            return base64.b64decode((await self._call("GET", path))["data"][reference["key"]]).decode()
        return str(variable.get("value", ""))

    async def _renew(self) -> None:
        """Renew the nodes' leases, by which the controllers know that the nodes are alive."""
        await asyncio.sleep(RENEW_S)
        await asyncio.gather(*map(self._renew_one, set(self._names) - self.lost))
        for node in (await self._call("GET", "/api/v1/nodes"))["items"]:
            name = node["metadata"]["name"]
            if name in set(self._names) - self.lost and not _is_ready(node):  # only its kubelet may take that back
                await self._call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [_ready()]}})

    async def _renew_one(self, name: str) -> None:
        await self._call("PATCH", f"{_LEASES}/{name}", {"spec": _held(name)})

    async def _call(self, method: str, path: str, body: Manifest | None = None) -> Manifest:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        async with self._http.request(method, path, json=body, headers={"Content-Type": kind}) as response:
            found: Manifest = await response.json()
            if response.status >= 300 and response.status not in (404, 409):  # its object has gone meanwhile
                raise OSError(f"{method} {path}: {found}")
            return found


async def _forever(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Repeat an operation without end; if the server does not answer, try again."""
    while True:
        try:
            await job()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            print(f"kubelet: {error}")
            await asyncio.sleep(TICK_S)


def _ready() -> Manifest:
    now = stamp()
    return {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def _is_ready(node: Manifest) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])


def _held(name: str) -> Manifest:
    return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": stamp()}


def _path(pod: Manifest) -> str:
    return f"namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until a condition is true, and return its value."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"did not happen in {PATIENCE_S:g} s: {what}")
