"""Test the holder of a pod as a process that calls the service's real route, with small programs as launchers."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from kernel_backend.api.base import Activity
from kernel_backend.api.routes import launcher_application
from kernel_backend.engines.allocations.callers import CallingHolders
from kernel_backend.engines.kubernetes.manifests import Manifest
from kernel_backend.engines.kubernetes.submission import Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.holder import HolderOrders, HolderReport
from tests.support.kept_pods import KeptPods, Namespace

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
# It writes what it sees, leaves a process behind, and waits for the order to exit.
LAUNCHER = """
import json, os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGURG, lambda *_: sys.exit(0))
key = json.loads(os.environ["DAYLIGHT_STAGING"])["key"]
orphan = subprocess.Popen(["sleep", "600"], start_new_session=True)
ran = pathlib.Path(os.environ["RAN"], key)
new = ran.with_name(f"new-{key}")
new.write_text(json.dumps([os.getppid(), orphan.pid, "DAYLIGHT_HOLDER" in os.environ]))
new.rename(ran)
time.sleep(600)
"""


class Processes(Namespace):
    """Namespace whose pods are processes of this machine."""

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__()
        self._environment, self.running = environment, list[subprocess.Popen[bytes]]()

    async def create(self, owner: Manifest, others: list[Manifest]) -> str:
        uid = await super().create(owner, others)
        (secret,) = (each["stringData"] for each in others if each["kind"] == "Secret")
        for pod in (each for each in others if each["kind"] == "Pod"):
            (container,) = pod["spec"]["containers"]
            given = {each["name"]: value(each, secret) for each in container["env"]}
            command, cwd = container["command"], container["workingDir"]
            self.running.append(subprocess.Popen(command, cwd=cwd, env=self._environment | given))
        return uid


def value(variable: Manifest, secret: dict[str, str]) -> str:
    """Return the value that a kubelet gives a variable of a container."""
    if "value" in variable:
        return str(variable["value"])
    source = variable["valueFrom"]
    return secret[source["secretKeyRef"]["key"]] if "secretKeyRef" in source else "n0"


class Site:
    """A service's part for kept pods, behind the real route, with pods that are processes."""

    def __init__(self, folder: Path) -> None:
        self.ran = folder / "ran"
        self.ran.mkdir()
        python = folder / "python"  # the interpreter of the pool's image
        (folder / "launcher.py").write_text(LAUNCHER)
        run = f'case "$*" in *kubernetes.holder*) exec {sys.executable} "$@";; esac'
        python.write_text(f"#!/bin/sh\n{run}\nexec {sys.executable} {folder / 'launcher.py'}\n")
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        sockets = bind_sockets(0, "127.0.0.1")
        environment = dict(os.environ) | {"RAN": str(self.ran), "PYTHONPATH": str(ROOT)}
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        self.cluster, self._sockets = Processes(environment), sockets
        self.pods = KeptPods(folder, self.cluster, (url,), python=str(python), keep_idle=60.0)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve the holders during the block, and kill all processes at its end."""
        service: Any = SimpleNamespace(holders=CallingHolders(lambda: {"cloud": self}))
        server = HTTPServer(launcher_application(service, Activity()))
        server.add_sockets(self._sockets)
        try:
            yield
        finally:
            server.stop()
            await server.close_all_connections()
            for each in self.cluster.running:
                tree = psutil.Process(each.pid).children(recursive=True) if each.poll() is None else []
                for process in (*tree, each):
                    process.kill()
                each.wait()

    def holder_digest(self, id: str) -> str:
        held = self.pods.kept.known.get(id)
        return held.record.digest if held is not None else ""

    async def holder_report(self, id: str, report: HolderReport) -> HolderOrders:
        return await self.pods.kept.report(id, report)

    async def runs(self, trial: int) -> Submission:
        """Submit the gang of a trial, and wait until its launcher runs."""
        gang = await self.pods.placed(trial)
        await until(lambda: (self.ran / f"1.{trial}-1").exists(), f"the launcher of trial {trial} runs")
        return gang


async def until(look: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not look():
            await asyncio.sleep(0.02)
    assert look(), what


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_gangs_run_one_after_another_in_one_pod_and_leave_no_process(site):
    async def go() -> None:
        async with site.serving():
            first = await site.runs(1)
            held = site.pods.held(first)
            await site.pods.kept.release(first)
            await until(lambda: held.ended == {first.step: 0}, "the released gang has ended")
            second = await site.runs(2)
            assert second.allocation == first.allocation
            await site.pods.kept.kill(AttemptId(1, 2, 1), second, held, ())
            assert held.ended == {first.step: 0, second.step: -9}
            ran = [json.loads(each.read_text()) for each in sorted(site.ran.iterdir())]
            (holder,) = site.cluster.running
            assert [(parent, secret) for parent, _, secret in ran] == [(holder.pid, False)] * 2
            assert not any(alive(orphan) for _, orphan, _ in ran)
            await site.pods.kept.give_back(first.allocation, "others wait")
            await until(lambda: holder.poll() == 0, "the holder exits")
            assert held.closed == "others wait"

    asyncio.run(go())


def test_a_gang_whose_pod_is_ended_is_asked_to_exit_before_its_holder_does(site):
    async def go() -> None:
        async with site.serving():
            first = await site.runs(1)
            (holder,) = site.cluster.running
            holder.terminate()
            await until(lambda: holder.poll() == 0, "the holder exits")
            held = site.pods.held(first)
            assert (held.ended, held.closed) == ({first.step: 0}, "Kubernetes ends its pod")

    asyncio.run(go())


def test_a_gang_goes_on_over_another_service_which_it_obeys(site):
    async def go() -> None:
        async with site.serving():
            first = await site.runs(1)
            site.pods.restart()
            held = site.pods.held(first)
            assert (held.gang, held.running) == (first.step, True)
            await site.pods.kept.release(first)
            await until(lambda: held.ended == {first.step: 0}, "the released gang has ended")

    asyncio.run(go())


def test_a_holder_leaves_a_service_that_does_not_know_its_allocation(site):
    async def go() -> None:
        async with site.serving():
            first = await site.runs(1)
            held = site.pods.held(first)
            await site.pods.kept.release(first)
            await until(lambda: held.ended == {first.step: 0}, "the released gang has ended")
            held.remove()
            site.pods.restart()
            held.wake()
            (holder,) = site.cluster.running
            await until(lambda: holder.poll() == 0, "the holder exits")

    asyncio.run(go())
