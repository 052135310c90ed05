"""Test pools that cannot work, on a real Slurm: the cell shows the reason within seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from kernel_backend.client import Client
from kernel_backend.errors import DaylightError
from kernel_backend.model.cluster.pools import PoolSettings
from kernel_backend.model.views.overview import Overview
from tests.support.slurm import Slurm, slurm
from tests.support.submitted import daylight
from tests.support.world import World, until

pytestmark = pytest.mark.distributed

BEGUN: dict[str, float] = {}  # time.monotonic() of the last submission


@pytest.fixture(scope="module")
def site() -> Iterator[Slurm]:
    """Provide a Slurm whose nodes claim to have GPUs, with a partition that no user may use."""
    with slurm(cpus=2, gpus=2, closed=True) as running:
        yield running


@pytest.fixture(scope="module")
def world(site: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("bad")
    made = World(folder / "home", shared_forkserver=True)
    made.environment |= site.environment | {"DAYLIGHT_HOME": str(made.home), "DAYLIGHT_SLOTS": "2"}
    made.serve()
    yield made
    made.close()


@pytest.fixture
def client(world: World) -> Client:
    return Client.connect(start=False, home=world.home)


@pytest.fixture
def submitted(world: World, client: Client) -> Iterator[Callable[..., int]]:
    """Add a pool with these settings, and submit to it; the experiment is stopped afterwards."""
    numbers: list[int] = []

    def submit(slots: int = 1, **settings) -> int:
        client.set_pool("bad", PoolSettings(engine="slurm", **settings))
        BEGUN["submit"] = time.monotonic()
        numbers.append(world.submit(pool="bad", slots=slots, epochs=1).experiment.number)
        return numbers[-1]

    yield submit
    for number in numbers:
        client.act(number, "stop")
        world.state(number, "stopped")


def told(world: World, number: int, text: str) -> Overview:
    """Wait until `daylight show` contains this text, and print the seconds since the submission."""
    until(lambda: text in said(world.overview(number)), f"#{number} says {text}")
    print(f"{time.monotonic() - BEGUN['submit']:.1f} s: {text}")
    shown = daylight(world, "show", str(number)).stdout
    assert text in " ".join(shown.split()), shown
    return world.overview(number)


def said(overview: Overview) -> str:
    """Return the texts that the view of the cell shows."""
    failures = [each.failure.message for each in overview.attempts if each.failure is not None]
    return "\n".join([overview.wait.reason if overview.wait else "", *overview.warnings, *failures])


def test_a_partition_that_is_not_there(world, client):
    client.set_pool("bad", PoolSettings(engine="slurm", partition="nope"))
    with pytest.raises(DaylightError, match="pool bad cannot be used now: Slurm knows no nodes of the partition nope"):
        world.submit(pool="bad", slots=1)


def test_a_partition_that_the_user_may_not_use(world, submitted):
    overview = told(world, submitted(partition="closed", gpus=False), "paused: Slurm: ")
    assert "ask the site whether you may use" in said(overview) or "change `partition`" in said(overview)


def test_more_slots_than_there_are(world, client):
    client.set_pool("bad", PoolSettings(engine="slurm", partition="main"))
    with pytest.raises(DaylightError, match=r"9999 slots requested; pool bad has 6\. The most for one trial there: 6"):
        world.submit(pool="bad", slots=9999)


def test_nodes_that_have_no_gpus_though_slurm_says_so(world, submitted):
    number = submitted(partition="main")
    told(world, number, "n1 was to have slots of kind cuda, and its launcher finds cpu")


def test_a_controller_that_is_down(world, site, submitted, client):
    client.set_pool("bad", PoolSettings(engine="slurm", partition="main"))
    site.saved()
    site.kill("slurmctld")
    try:
        told(world, submitted(partition="main"), "Slurm's controller does not answer")
    finally:
        site.start("slurmctld")
        site.answers()
