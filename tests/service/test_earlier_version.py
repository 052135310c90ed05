"""Test clients and services of an earlier version with those of this one, and a gang that outlives its service."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from kernel_backend import discovery
from kernel_backend.client import Client
from tests.support import forkservers
from tests.support.world import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
# Stands for the last release until there is one, whose tag takes its place: the commit before the migrations up to the
# first release became one, so that its database is the oldest that this version opens.
EARLIER = "07212f7f80b9"
DAYLIGHT = "import sys; from kernel_backend.cli import main; sys.exit(main())"
CELL = """\
import os
import time
import torch
from torch import nn

def train_data():
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.TensorDataset(x, (x.sum(1, keepdim=True) > 0).float())
def validation_data():
    return train_data()
def model(width=16):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))
def optimizer(params, lr=1e-2):
    return torch.optim.AdamW(params, lr=lr)
def loss(output, target, nap=0.0, hold=""):
    time.sleep(nap)
    while hold and os.path.lexists(hold):
        time.sleep(0.05)
    return nn.functional.binary_cross_entropy_with_logits(output, target)
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the Python of an environment with the earlier version, which uses the packages installed here."""
    folder = tmp_path_factory.mktemp("earlier")
    if subprocess.run(["git", "cat-file", "-e", EARLIER], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip(f"this is no clone with the history of the project: there is no commit {EARLIER}")
    parts = ("daylight", "jupyter_ext", "kernel_backend")
    packed = subprocess.run(["git", "archive", EARLIER, *parts], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    venv.create(folder, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    subprocess.run(["tar", "-x", "-C", packages], input=packed.stdout, check=True)
    # As a path alone: the `.pth` there, by which this version is installed, is not read.
    (Path(packages) / "ours.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin/python"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    forkservers.share(home)
    (tmp_path / "cell.py").write_text(CELL)
    yield home
    end(home)


def run(python: Path | str, home: Path, *words: str) -> str:
    """Run a `daylight` command of a version, assert its success, and return its output."""
    done = subprocess.run(
        [str(python), "-c", DAYLIGHT, *words],
        cwd=home.parent,
        env={**os.environ, "DAYLIGHT_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def serve(python: Path | str, home: Path) -> None:
    """Start the service of a version."""
    environment = {**os.environ, "DAYLIGHT_HOME": str(home)}
    with open(home.parent / "serve.log", "a") as log:
        process = subprocess.Popen(
            [str(python), "-m", "kernel_backend"], cwd=home, env=environment, stdout=log, stderr=log
        )
    until(lambda: process.poll() is not None or discovery.find(home) is not None, "a service answers")
    assert process.poll() is None, (home.parent / "serve.log").read_text()


def end(home: Path) -> None:
    """End the service of this home, and wait until it is gone; its gangs continue."""
    address = discovery.find(home)
    if address is not None:
        process = psutil.Process(address.pid)
        process.terminate()
        process.wait(PATIENCE_S)


def walk(python: Path | str, home: Path) -> None:
    """Submit, list and label experiments, like a user of a version."""
    said = run(python, home, "submit", "cell.py", "--slots", "1", "--epochs", "2", "--wait")
    assert "completed" in said
    assert "completed" in run(python, home, "list")
    for verb in ("show", "metrics", "checkpoints"):
        run(python, home, verb, "1")
    assert "renamed" in run(python, home, "rename", "1", "renamed")


@pytest.mark.long
def test_a_client_of_an_earlier_version_uses_this_service(earlier: Path, home: Path) -> None:
    serve(sys.executable, home)
    walk(earlier, home)


@pytest.mark.long
def test_this_client_uses_a_service_of_an_earlier_version(earlier: Path, home: Path) -> None:
    serve(earlier, home)
    walk(sys.executable, home)


def test_a_gang_of_an_earlier_version_delivers_to_the_service_that_replaces_its_own(earlier: Path, home: Path) -> None:
    serve(earlier, home)
    hold = home.parent / "hold"
    words = ("submit", "cell.py", "--slots", "1", "--epochs", "40", "--batch-size", "8", "nap=0.02", f"hold='{hold}'")
    run(earlier, home, *words)
    with closing(Client.connect(start=False, home=home)) as client:
        until(lambda: client.experiment(1).trials[0].step > 0, "it trains")
        hold.touch()  # it stands still until there is another service
    end(home)
    serve(sys.executable, home)
    with closing(Client.connect(start=False, home=home)) as client:
        assert client.experiment(1).state == "running"
        hold.unlink()
        until(lambda: client.experiment(1).experiment.state != "active", "it has ended")
        (trial,) = client.experiment(1).trials
        assert (client.experiment(1).state, trial.attempt) == ("completed", 1)
        assert [report.step for report in client.reports(1, kind="training")] == list(range(1, trial.step + 1))
