"""Provide launchers as processes, with ranks that take steps without a training."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_backend.engines.kubernetes import api, retries, status, watch
from kernel_backend.engines.kubernetes.engine import KubernetesEngine
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.launcher import FAREWELL_S
from kernel_backend.model.experiment import Config
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import AttemptResult
from tests.engines.contract import specifications
from tests.engines.join_service import Joined, Joins
from tests.engines.kubernetes_gangs import sleeping_engine
from tests.support.builders import share
from tests.support.kubernetes_control_plane import ControlPlane, control_plane
from tests.support.kubernetes_site import KubernetesSite
from tests.support.kubernetes_site import kubernetes_site as site_of
from tests.support.kubernetes_stub import Stub, node
from tests.support.process_kubelet import ProcessKubelet
from tests.support.slurm import Slurm, slurm

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site() -> Iterator[Slurm]:
    """Provide a real Slurm of three nodes with 8 CPUs each, which environment variables select."""
    with slurm() as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(running.conf))
        yield running


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """Provide a real control plane of Kubernetes, without nodes."""
    with control_plane() as running:
        yield running


@pytest.fixture
def kubernetes_site(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesSite]:
    """Provide a namespace of a real Kubernetes with two nodes, which environment variables select."""
    with site_of(plane, tmp_path) as found:
        monkeypatch.setenv("KUBECONFIG", str(found.config))
        yield found


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """Provide a stub API server with two nodes, on which nothing runs."""
    found = Stub(tmp_path)
    found.cluster.nodes = [node("n1"), node("n2")]
    for module, name in ((retries, "RETRY_S"), (retries, "CUT_S"), (watch, "RETRY_S"), (status, "SETTLE_S")):
        monkeypatch.setattr(module, name, 0.1)
    monkeypatch.setattr(status, "RECORD_S", 0.1)
    monkeypatch.setattr(api, "PAUSES_S", (0.01, 0.02))
    with found.serving():
        monkeypatch.setenv("KUBECONFIG", str(found.config))
        yield found


@pytest.fixture
def kubelet(stub: Stub, tmp_path: Path) -> ProcessKubelet:
    """Provide a scheduler and kubelet that run the stub's pods as processes."""
    found = ProcessKubelet(stub.cluster, tmp_path)
    stub.begin(found.run)
    return found


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., KubernetesEngine]:
    """Provide a function `make(**settings)` that returns an engine, as of a restarted service."""
    return lambda **settings: sleeping_engine(tmp_path, **settings)


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., LaunchSpec]:
    """Provide a function `job(number, **fields)` that returns a gang's launch spec for the pool `cloud`."""
    make = specifications(tmp_path, tmp_path / "home", "python")
    return lambda number=1, **fields: make(number).model_copy(update={"pool": "cloud", **fields})


@pytest.fixture
def joins(tmp_path: Path) -> Iterator[Joins]:
    """Provide services for the joins of launchers, for all engines of a test."""
    with contextlib.ExitStack() as until, pytest.MonkeyPatch.context() as patch:
        found = Joins(tmp_path, until)
        patch.setattr(Joined, "joins", found, raising=False)
        yield found


@pytest.fixture
def python(tmp_path: Path) -> str:
    """Provide an interpreter that runs the fake rank in place of the runner."""
    script = tmp_path / "python"
    standin = Path(__file__).with_name("standin_steps.py")
    script.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{ROOT}"\n'
        f'if [ "$3" = kernel_backend.runner ]; then exec {sys.executable} {standin} "$4"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


@pytest.fixture
def launched(tmp_path: Path, python: str):
    """Provide `launched(way=...)`, which runs two ranks of 60 steps, the second of which stops at step 4.

    It returns the folder and the launcher's record. `farewell` is how long a rank that has ended waits for the other.
    """

    def launch(way: str, farewell: float = FAREWELL_S, **params) -> tuple[AttemptFolder, AttemptResult]:
        folder = AttemptFolder(tmp_path / "attempt")
        job = LaunchSpec(
            experiment=1,
            trial=1,
            attempt=1,
            config=Config(slots=2, threads=1, hang_timeout=4.0),
            params={"steps": 60, "stop": 4, "only_rank": 1, "way": way} | params,
            placement=(share(),),
            python=python,
            cwd=str(tmp_path),
            code=str(Path(__file__).parent),  # so that the stand-in counts as the user's own
            snapshot="0" * 64,
            checkpoints=str(tmp_path / "checkpoints"),
            home=str(tmp_path),
        )
        folder.prepare(job, "token")
        environment = {**os.environ, "DAYLIGHT_WARM": "0", "DAYLIGHT_HOME": str(tmp_path)}
        code = f"import kernel_backend.launch.launcher as it, pathlib, sys; it.FAREWELL_S = {farewell}; "
        command = [python, "-P", "-c", f"{code} it.launch(pathlib.Path(sys.argv[1]))", str(folder.path)]
        subprocess.run(command, env=environment, check=True, timeout=240, stdin=subprocess.DEVNULL)
        result = folder.result()
        assert result is not None
        return folder, result

    return launch
