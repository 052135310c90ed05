"""Test a real Jupyter server and its kernel, and an experiment that outlives both."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from websockets.sync.client import connect

from tests.support.world import DEFINITION, World, until

pytestmark = [pytest.mark.notebook, pytest.mark.distributed]


class JupyterServer:
    """Process `jupyter server` on a free port, used through its REST API and its kernels' websockets."""

    def __init__(self, world: World, folder: Path) -> None:
        runtime = folder / "runtime"
        environment = {
            **world.environment,
            "JUPYTER_RUNTIME_DIR": str(runtime),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "IPYTHONDIR": str(folder / "ipython"),
        }
        command = [sys.executable, "-m", "jupyter_server", "--port=0", "--no-browser", f"--ServerApp.root_dir={folder}"]
        root = ["--allow-root"] if os.geteuid() == 0 else []
        folder.mkdir(exist_ok=True)
        with (folder / "jupyter.log").open("wb") as log:
            self.process = subprocess.Popen([*command, *root], env=environment, stdout=log, stderr=log)
        info = until(lambda: next(runtime.glob("jpserver-*.json"), None), "the Jupyter server starts")
        until(lambda: info.read_text().endswith("}\n") or info.stat().st_size > 100, "its file is whole")
        facts = json.loads(info.read_text())
        self.url, self.token = facts["url"].rstrip("/"), facts["token"]
        answer = httpx.post(f"{self.url}/api/kernels", headers={"Authorization": f"token {self.token}"}, timeout=60)
        self.kernel = answer.raise_for_status().json()["id"]

    def execute(self, code: str) -> str:
        """Execute a cell, and return as text what it prints, displays and raises."""
        url = f"ws{self.url.removeprefix('http')}/api/kernels/{self.kernel}/channels?token={self.token}"
        message = str(uuid.uuid4())
        header = {
            "msg_id": message,
            "username": "",
            "session": message,
            "msg_type": "execute_request",
            "version": "5.3",
        }
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": True, "user_expressions": {}}
        said: list[str] = []
        with connect(url, open_timeout=60) as channel:
            request = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
            channel.send(json.dumps(request))
            while True:
                answer = json.loads(channel.recv(timeout=120))
                if answer["parent_header"].get("msg_id") != message:
                    continue
                kind, body = answer["msg_type"], answer["content"]
                said.append(body.get("text") or body.get("data", {}).get("text/plain") or "")
                said += body.get("traceback", [])
                if kind == "status" and body["execution_state"] == "idle":
                    return "\n".join(said)

    def kill(self) -> None:
        """Kill the server and its kernels by SIGKILL."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):  # it has ended by itself
                if "ipykernel" in " ".join(process.cmdline()):
                    process.kill()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "home", shared_forkserver=True)
    yield made
    made.close()


def test_an_experiment_outlives_the_kernel_and_the_jupyter_server_that_submitted_it(world, tmp_path):
    server = JupyterServer(world, tmp_path)
    assert "Traceback" not in server.execute("%load_ext daylight")
    cell = "%%dlsubmit --slots 2 --epochs 30 --batch-size 8 --threads 1 pause=0.02\n" + DEFINITION
    said = server.execute(cell)
    assert "#1" in said, said
    world.reached(1, 8)
    server.kill()
    until(lambda: not world.processes("ipykernel"), "the kernel is dead")
    overview = world.ended(1)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 1)
    # and the next Jupyter server finds the same service, with all of it
    again = JupyterServer(world, tmp_path / "again")
    said = again.execute("%load_ext daylight\n%dl show 1")
    assert "completed" in said, said
    again.kill()
