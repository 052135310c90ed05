"""Run containers of pods as processes of this machine, each in its own session, like a kubelet."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

Manifest = dict[str, Any]
_WITHHELD = ("DAYLIGHT_HOME", "DAYLIGHT_SLOTS", "KUBECONFIG", "PYTHONPATH")


def stamp(at: datetime | None = None) -> str:
    """Return a time in the format of the API server."""
    return (at or datetime.now(UTC)).isoformat().replace("+00:00", "Z")


def is_over(pod: Manifest) -> bool:
    """Return whether a pod has ended."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


class Report(NamedTuple):
    """Report of a kubelet about a pod: changes of its status, and whether its object can be deleted."""

    status: Manifest
    gone: bool = False


class PodProcesses:
    """Runner of the first container of each pod: it starts, signals and reaps the processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}  # by uid of the pod
        self._signalled, self._told = set[str](), set[str]()  # pods that were sent SIGTERM; those whose end was told

    def is_new(self, pod: Manifest) -> bool:
        """Return whether a pod must still be started."""
        uid = pod["metadata"]["uid"]
        begun = uid in self._running or uid in self._told or is_over(pod)
        return not begun and not pod["metadata"].get("deletionTimestamp")

    def advance(self, pod: Manifest, environment: Mapping[str, str]) -> Report | None:
        """Start a new pod, end a deleted one, or reap one that has ended.

        Return a report, None if nothing has changed.
        """
        uid, until = pod["metadata"]["uid"], pod["metadata"].get("deletionTimestamp")
        if self.is_new(pod):
            return self._start(pod, environment)
        process = self._running.get(uid)
        if process is None:
            return Report({}, gone=True) if until is not None else None
        if until is not None and uid not in self._signalled:
            self._signalled.add(uid)
            process.send_signal(signal.SIGTERM)
        if until is not None and datetime.now(UTC) > datetime.fromisoformat(until):
            _kill(process)
        if (code := process.poll()) is None:
            return None
        _kill(process)
        if uid in self._told:
            return Report({}, gone=True) if until is not None else None
        self._told.add(uid)
        return Report(self._ended(pod, code), gone=until is not None)

    def evict(self, pod: Manifest, message: str) -> Report:
        """End a pod because its node lacks a resource, such as disk or memory."""
        uid = pod["metadata"]["uid"]
        _kill(self._running[uid])
        self._running[uid].wait()
        self._told.add(uid)
        return Report({"phase": "Failed", "reason": "Evicted", "message": message, "containerStatuses": []})

    def kill(self, pod: Manifest) -> None:
        """Kill the processes of a pod."""
        _kill(self._running[pod["metadata"]["uid"]])

    def close(self) -> None:
        """Kill all processes."""
        for process in self._running.values():
            _kill(process)

    def _start(self, pod: Manifest, environment: Mapping[str, str]) -> Report:
        container, uid = pod["spec"]["containers"][0], pod["metadata"]["uid"]
        if container["image"].startswith("missing"):
            self._told.add(uid)
            why = f"Back-off pulling image {container['image']}"
            return Report(_status(pod, "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": why}}))
        base = {name: value for name, value in os.environ.items() if name not in _WITHHELD}
        with (self._folder / f"{uid}.log").open("wb") as log:
            try:
                self._running[uid] = subprocess.Popen(
                    container["command"],
                    cwd=container.get("workingDir"),
                    env=base | environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                self._told.add(uid)
                return Report(_over(pod, {"exitCode": 128, "reason": "StartError", "message": str(error)}))
        return Report(_status(pod, "Running", {"running": {"startedAt": stamp()}}))

    def _ended(self, pod: Manifest, code: int) -> Manifest:
        text = (self._folder / f"{pod['metadata']['uid']}.log").read_text(errors="replace")[-2048:]
        told = {"exitCode": code if code >= 0 else 128 - code, "reason": "Error" if code else "Completed"}
        return _over(pod, told | ({"message": text} if code else {}))


def _status(pod: Manifest, phase: str, state: Manifest) -> Manifest:
    container = pod["spec"]["containers"][0]
    about = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
    return {"phase": phase, "containerStatuses": [{**about, "ready": phase == "Running", "state": state}]}


def _over(pod: Manifest, terminated: Manifest) -> Manifest:
    over = "Failed" if terminated["exitCode"] else "Succeeded"
    return _status(pod, over, {"terminated": terminated | {"finishedAt": stamp()}})


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill all processes of a pod, as the end of its cgroup would."""
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
