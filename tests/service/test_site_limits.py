"""Test that users see the limits of a site's slurmdbd, and that waiting for these uses up no attempt."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kernel_backend.client import Client
from kernel_backend.model.views.overview import Overview
from tests.support.slurm import Slurm, slurm
from tests.support.world import World, until

pytestmark = pytest.mark.distributed

POOLS = {
    "gpu": {"engine": "slurm", "partition": "main", "qos": "tight"},
    "strict": {"engine": "slurm", "partition": "main", "qos": "strict"},
    "cpu": {"engine": "slurm", "partition": "main", "gpus": False},
}


@pytest.fixture(scope="module")
def site() -> Iterator[Slurm]:
    """Provide a Slurm with slurmdbd, whose nodes simulate GPUs."""
    with slurm(gpus=4, accounting=True) as running:
        running.accounts(
            "add qos tight,strict",
            "modify qos tight set MaxTRESPerUser=gres/gpu=2",
            "modify qos strict set MaxTRESPerUser=gres/gpu=2 Flags=DenyOnLimit",
            "modify account lab set qos+=tight,strict",
        )
        yield running


@pytest.fixture(scope="module")
def world(site: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Provide a service with pools on that Slurm."""
    folder = tmp_path_factory.mktemp("site")
    made = World(folder / "home", shared_forkserver=True)
    made.environment |= site.environment | {"DAYLIGHT_HOME": str(made.home)}
    (folder / "config.py").write_text(f"c.Daylight.pools = {POOLS!r}\n")
    made.settings = (f"--config={folder / 'config.py'}",)
    made.serve()
    yield made
    made.close()


def waiting(world: World, number: int, text: str) -> Overview:
    """Wait until an experiment shows this reason for its wait."""
    begun = time.monotonic()
    found = until(lambda: (o := world.overview(number)).wait and text in o.wait.reason and o, text)
    print(f"{text!r} is read after {time.monotonic() - begun:.1f} s")
    return found


def stop(world: World, number: int) -> None:
    Client.connect(start=False, home=world.home).act(number, "stop")
    world.state(number, "stopped")


def test_a_limit_for_the_user_is_read_as_the_reason_of_the_wait(world):
    number = world.submit(pool="gpu", slots=3, epochs=1).experiment.number
    expected = "gpu: 1st of ours; Slurm: QOSMaxGRESPerUser (your site's limit for you)"
    assert waiting(world, number, "QOSMaxGRESPerUser").wait.reason == expected
    stop(world, number)


def test_a_gang_that_the_site_denies_pauses_its_experiment_with_the_limit(world):
    number = world.submit(pool="strict", slots=3, epochs=1).experiment.number
    paused = world.state(number, "paused")
    (warning,) = (each for each in paused.warnings if each.startswith("paused: Slurm: "))
    assert "QOSMaxGRESPerUser (your site's limit for you). To change: request less" in warning
    stop(world, number)


@pytest.mark.long
def test_waiting_at_the_limit_of_submitted_jobs_uses_up_no_attempt(world, site):
    site.limits(MaxSubmitJobs=1)
    first = world.lasting(pool="cpu", slots=1, epochs=2)
    world.reached(first, 1)
    second = world.submit(pool="cpu", slots=1, epochs=1).experiment.number
    waiting(world, second, "Slurm: AssocMaxSubmitJobLimit (your site's limit of submitted jobs)")
    world.kill_service()
    world.serve()
    waiting(world, second, "AssocMaxSubmitJobLimit")
    world.hurry(first)
    for number in (first, second):
        overview = world.ended(number)
        assert (overview.state, len(overview.attempts)) == ("completed", 1)
    site.limits(MaxSubmitJobs=-1)


@pytest.mark.long
def test_a_gang_that_is_submitted_while_the_controller_is_down_says_so_and_starts_once(world, site):
    site.saved()
    site.kill("slurmctld")
    number = world.submit(pool="cpu", slots=1, epochs=1).experiment.number
    waiting(world, number, "Slurm's controller does not answer")
    site.start("slurmctld")
    site.answers()
    overview = world.ended(number)
    assert (overview.state, len(overview.attempts)) == ("completed", 1)
