"""Test bad nodes of a real Slurm: gangs move to others without using a retry, until an admin trusts the node again."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kernel_backend.client import Client
from kernel_backend.model.views.overview import NodeUse, Overview
from tests.support.slurm import NODES, Slurm, slurm
from tests.support.submitted import daylight, submit_program
from tests.support.world import World, until

pytestmark = pytest.mark.distributed

CLOCK = "import time\n_time = time.time\ntime.time = lambda: _time() - 300\n"
VERSION = "import kernel_backend\nkernel_backend.__version__ = '0.0.1'\n"


@pytest.fixture(scope="module")
def site() -> Iterator[Slurm]:
    """Provide a Slurm of three nodes with one CPU each, which uses the first idle one."""
    with slurm(cpus=1) as running, running.lasting_forkservers():
        yield running


@pytest.fixture(scope="module")
def world(site: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Provide a service with the pool `cluster` in addition to its own machine."""
    folder = tmp_path_factory.mktemp("nodes")
    made = World(folder / "home", shared_forkserver=True)
    made.environment |= site.environment | {"DAYLIGHT_HOME": str(made.home), "DAYLIGHT_SLOTS": "2"}
    pools = {"cluster": {"engine": "slurm", "partition": "main"}}
    (folder / "config.py").write_text(f"c.Daylight.pools = {pools!r}\n")
    made.settings = (f"--config={folder / 'config.py'}",)
    made.serve()
    yield made
    made.close()


@pytest.fixture
def client(world: World, site: Slurm) -> Iterator[Client]:
    """Provide a client of the service, and make all nodes trusted afterwards."""
    client = Client.connect(start=False, home=world.home)
    yield client
    for name in NODES:
        site.set_on(name)
        Client.connect(start=False, home=world.home).undrain(name)


def sitecustomize(folder: Path, text: str) -> str:
    """Provide a folder for PYTHONPATH whose program every interpreter runs at its start."""
    (folder / "sitecustomize.py").write_text(text)
    return str(folder)


def node(client: Client, name: str = "n1") -> NodeUse:
    return next(each for each in client.nodes() if each.name == name)


def reason(client: Client, name: str = "n1") -> str:
    suspicion = node(client, name).suspicion
    return suspicion.reason if suspicion is not None and suspicion.left_out else ""


def where(overview: Overview) -> list[list[str]]:
    """Return the nodes of each attempt."""
    return [[each.name for each in attempt.nodes] for attempt in overview.attempts]


def run(world: World, folder: Path, command: str = "true", *options: str) -> int:
    """Submit a command without retries to the pool, and return its number."""
    line = ("--pool=cluster", "--max-restarts=0", "--again", *options, "--", "bash", "-c", command)
    return submit_program(world, folder, "", *line)


def ended(world: World, folder: Path, command: str = "true") -> Overview:
    """Run a command until it has ended."""
    return world.ended(run(world, folder, command))


def test_a_node_with_another_daylight_sends_the_gang_elsewhere_and_costs_no_retry(world, site, client, tmp_path):
    site.set_on("n1", PYTHONPATH=sitecustomize(tmp_path, VERSION))
    overview = ended(world, tmp_path)
    assert (overview.state, where(overview)) == ("completed", [[], ["n2"]])
    assert "n1 has Daylight 0.0.1, and the service" in reason(client)
    first = overview.attempts[0].failure.message
    assert first.endswith("Node n1 is left out for now, and the gang goes elsewhere")


def test_a_wrong_clock_is_noted_and_suspected_also_by_the_next_service(world, site, client, tmp_path):
    site.set_on("n1", PYTHONPATH=sitecustomize(tmp_path, CLOCK))
    overview = ended(world, tmp_path)
    assert (overview.state, where(overview)) == ("completed", [["n1"]])
    assert any(re.fullmatch(r"the clock of n1 is \d+ s behind", each) for each in overview.warnings)
    world.kill_service()
    client = world.serve()
    assert reason(client) in overview.warnings
    assert where(ended(world, tmp_path)) == [["n2"]]
    told = daylight(world, "nodes").stdout
    assert "suspect (idle)" in told
    assert "n1: left out for" in told
    assert "n1: gangs are started there again" in daylight(world, "nodes", "undrain", "n1").stdout
    site.set_on("n1")
    assert where(ended(world, tmp_path)) == [["n1"]]


def test_a_node_that_loses_two_attempts_gets_no_third(world, client, tmp_path):
    client.drain("n3")  # faults on three nodes would be the trial's own
    number = run(world, tmp_path, f"test -e {tmp_path}/through || sleep 600")
    losses: Counter[str] = Counter()
    while 2 not in losses.values():  # Slurm chooses another node while the lost one is still being cleared
        lose(world, number, losses.total() + 1)
        losses[where(world.overview(number))[-1][0]] += 1
    (tmp_path / "through").touch()
    overview = world.ended(number)
    (bad,) = [name for name, count in losses.items() if count == 2]
    assert overview.state == "completed"
    assert where(overview)[-1] != [bad]
    assert reason(client, bad).startswith("2 attempts were lost there within an hour: ")


def lose(world: World, number: int, attempt: int) -> None:
    """Kill all processes of an attempt on its node as soon as they run there, like a crash of the node."""
    until(lambda: len(world.overview(number).attempts) == attempt and world.ranks(), f"attempt {attempt}")
    key, ranks = f"{number}.1-{attempt}", set(world.ranks().values())
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if key in " ".join(each.cmdline()) or each in ranks:
                each.kill()


def test_a_node_whose_gpu_breaks_is_left_out_after_the_first_time(world, site, client, tmp_path):
    broken = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    overview = ended(world, tmp_path, f"test $SLURMD_NODENAME = n2 || {{ echo '{broken}' >&2; exit 1; }}")
    assert (overview.state, where(overview)) == ("completed", [["n1"], ["n2"]])
    assert reason(client) == "a rank met the GPU error 'uncorrectable ECC'"
    assert f"node n1 is left out for now: {reason(client)}" in overview.warnings


def test_slurm_chooses_no_node_that_an_admin_has_drained_here(world, client, tmp_path):
    client.drain("n1")
    assert where(ended(world, tmp_path)) == [["n2"]]
