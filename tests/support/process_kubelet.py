"""Simulate a scheduler and a kubelet: pods of the Kubernetes stub become processes of this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.kubernetes_stub import Cluster, Manifest, amount
from tests.support.pod_processes import PodProcesses, is_over, stamp

TICK_S = 0.03


class ProcessKubelet:
    """Kubelet that places pods on nodes with free resources, and runs their containers as processes."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._processes, self._folder = cluster, PodProcesses(folder), folder
        self.lost: set[str] = set()  # nodes whose kubelet does not answer

    async def run(self) -> None:
        """Run all pods until cancelled; then end their processes."""
        try:
            while True:
                for (kind, _), pod in list(self._cluster.objects.items()):
                    if kind == "pods":
                        self._tend(pod)
                await self._cluster.tell()
                await asyncio.sleep(TICK_S)
        finally:
            self._processes.close()

    def kill(self, pod: Manifest) -> None:
        """Kill all that runs in a pod, as what its kernel may do."""
        self._processes.kill(pod)

    def _tend(self, pod: Manifest) -> None:
        if "daylight/gang" not in pod["metadata"]["labels"]:
            return  # another program's, which only holds what it requests
        if not pod["spec"].get("nodeName"):
            self._schedule(pod)
        elif pod["spec"]["nodeName"] not in self.lost and not is_over(pod):
            self._advance(pod)

    def _schedule(self, pod: Manifest) -> None:
        if pod["spec"].get("schedulingGates"):
            return
        pods = [each for (kind, _), each in self._cluster.objects.items() if kind == "pods" and not is_over(each)]
        for node in self._cluster.nodes:
            there = [each for each in pods if each["spec"].get("nodeName") == node["metadata"]["name"]]
            if _fits(pod, node, there):
                pod["spec"]["nodeName"] = node["metadata"]["name"]
                self._tell(pod, {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp()})
                return
        count = len(self._cluster.nodes)
        message = f"0/{count} nodes are available: {count} Insufficient cpu."
        known = pod["status"].get("conditions") or [{}]
        if known[0].get("message") != message:
            why = {"reason": "Unschedulable", "message": message, "lastTransitionTime": stamp()}
            self._tell(pod, {"type": "PodScheduled", "status": "False", **why})

    def _tell(self, pod: Manifest, condition: Manifest) -> None:
        pod["status"]["conditions"] = [condition]
        self._cluster.put("pods", pod, "MODIFIED")

    def _advance(self, pod: Manifest) -> None:
        """Start, signal or reap the process of a pod."""
        environment = self._environment(pod) if self._processes.is_new(pod) else {}
        report = self._processes.advance(pod, environment)
        if report is not None and report.status:
            pod["status"] |= report.status
            self._cluster.put("pods", pod, "MODIFIED")
        if report is not None and report.gone:
            self._cluster.put("pods", pod, "DELETED")

    def _environment(self, pod: Manifest) -> dict[str, str]:
        return {each["name"]: self._value(each, pod) for each in pod["spec"]["containers"][0]["env"]}

    def _value(self, variable: Manifest, pod: Manifest) -> str:
        if "value" in variable:
            return self._on_node(str(variable["value"]), pod)
        if "fieldRef" in variable["valueFrom"]:
            return str(pod["spec"]["nodeName"])
        reference = variable["valueFrom"]["secretKeyRef"]
        return str(self._cluster.get("secrets", reference["name"])["data"][reference["key"]])

    def _on_node(self, value: str, pod: Manifest) -> str:
        """Return a variable's value: in place of a path on a volume of the node, one that each node has for itself."""
        paths = [each["hostPath"]["path"] for each in pod["spec"].get("volumes", ()) if "hostPath" in each]
        return str(self._folder / pod["spec"]["nodeName"] / value[1:]) if value in paths else value


def _fits(pod: Manifest, node: Manifest, there: list[Manifest]) -> bool:
    offered, gang = node["status"]["allocatable"], pod["metadata"]["labels"].get("daylight/gang")
    room = all(sum(amount(each, name) for each in (*there, pod)) <= int(offered.get(name, 0)) for name in _asked(pod))
    return room and all(each["metadata"]["labels"].get("daylight/gang") != gang for each in there)


def _asked(pod: Manifest) -> list[str]:
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    return [name for name in requests if name != "memory"]
