"""A scheduler and a kubelet in one: pods of the stub of Kubernetes become processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import psutil

from tests.support.kubernetes_stub import Cluster, Manifest, amount, is_over, stamp

TICK_S = 0.03
_WITHHELD = ("DAYLIGHT_HOME", "DAYLIGHT_SLOTS", "KUBECONFIG", "PYTHONPATH")


class ProcessKubelet:
    """Place pods on nodes with room, and run their containers as processes in sessions of their own."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}  # by uid of the pod
        self._told: set[str] = set()  # uids of pods that were sent SIGTERM
        self.lost: set[str] = set()  # nodes whose kubelet does not answer

    async def run(self) -> None:
        """Look after all pods until cancelled; then end their processes."""
        try:
            while True:
                for (kind, _), pod in list(self._cluster.objects.items()):
                    if kind == "pods":
                        self._tend(pod)
                await self._cluster.tell()
                await asyncio.sleep(TICK_S)
        finally:
            for process in self._running.values():
                _kill(process)

    def _tend(self, pod: Manifest) -> None:
        if not pod["spec"].get("nodeName"):
            self._schedule(pod)
        elif pod["spec"]["nodeName"] not in self.lost and not is_over(pod):
            self._advance(pod)

    def _schedule(self, pod: Manifest) -> None:
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
        uid, until = pod["metadata"]["uid"], pod["metadata"].get("deletionTimestamp")
        process = self._running.get(uid)
        if process is None:
            if until is None:
                self._start(pod)
            else:
                self._cluster.put("pods", pod, "DELETED")
            return
        if until is not None and uid not in self._told:
            self._told.add(uid)
            process.send_signal(signal.SIGTERM)
        if until is not None and stamp() > until:
            _kill(process)
        if (code := process.poll()) is not None:
            _kill(process)
            self._ended(pod, code)
            if until is not None:
                self._cluster.put("pods", pod, "DELETED")

    def _start(self, pod: Manifest) -> None:
        container, uid = pod["spec"]["containers"][0], pod["metadata"]["uid"]
        if container["image"].startswith("missing"):
            waiting = {"reason": "ImagePullBackOff", "message": f"Back-off pulling image {container['image']}"}
            if not pod["status"].get("containerStatuses"):
                pod["status"]["containerStatuses"] = [{"state": {"waiting": waiting}}]
                self._cluster.put("pods", pod, "MODIFIED")
            return
        base = {name: value for name, value in os.environ.items() if name not in _WITHHELD}
        with (self._folder / f"{uid}.log").open("wb") as log:
            try:
                self._running[uid] = subprocess.Popen(
                    container["command"],
                    cwd=container["workingDir"],
                    env=base | {each["name"]: self._value(each, pod) for each in container["env"]},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                self._finish(pod, {"exitCode": 128, "reason": "StartError", "message": str(error)})
                return
        pod["status"] |= {"phase": "Running", "containerStatuses": [{"state": {"running": {"startedAt": stamp()}}}]}
        self._cluster.put("pods", pod, "MODIFIED")

    def _value(self, variable: Manifest, pod: Manifest) -> str:
        if "value" in variable:
            return str(variable["value"])
        if "fieldRef" in variable["valueFrom"]:
            return str(pod["spec"]["nodeName"])
        reference = variable["valueFrom"]["secretKeyRef"]
        return str(self._cluster.get("secrets", reference["name"])["data"][reference["key"]])

    def _ended(self, pod: Manifest, code: int) -> None:
        text = (self._folder / f"{pod['metadata']['uid']}.log").read_text(errors="replace")[-2048:]
        told = {"exitCode": code if code >= 0 else 128 - code, "reason": "Error" if code else "Completed"}
        self._finish(pod, told | ({"message": text} if code else {}))

    def _finish(self, pod: Manifest, terminated: Manifest) -> None:
        over = "Failed" if terminated["exitCode"] else "Succeeded"
        ended = terminated | {"finishedAt": stamp(datetime.now(UTC))}
        pod["status"] |= {"phase": over, "containerStatuses": [{"state": {"terminated": ended}}]}
        self._cluster.put("pods", pod, "MODIFIED")


def _fits(pod: Manifest, node: Manifest, there: list[Manifest]) -> bool:
    offered, gang = node["status"]["allocatable"], pod["metadata"]["labels"].get("daylight/gang")
    room = all(sum(amount(each, name) for each in (*there, pod)) <= int(offered.get(name, 0)) for name in _asked(pod))
    return room and all(each["metadata"]["labels"].get("daylight/gang") != gang for each in there)


def _asked(pod: Manifest) -> list[str]:
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    return [name for name in requests if name != "memory"]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End all processes of a pod, as the end of its cgroup does."""
    with contextlib.suppress(psutil.Error):
        for each in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                each.kill()
    for each in psutil.process_iter(["pid"]):
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(each.pid) == process.pid and each.pid != process.pid:
                each.kill()
    if process.poll() is None:
        process.kill()
