"""Test SIGKILL of every kind of process: nothing is lost or reported twice, and bits equal an undisturbed run's."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import pytest

from kernel_backend import discovery
from tests.support.world import World, gone, until

pytestmark = pytest.mark.distributed

OPTIONS = {"epochs": 6, "checkpoint_every": {"steps": 4}}
# The ranks of Horovod wake in each of its cycles also while they wait.
WAITING = {**OPTIONS, "backend": "torch"}
STEPS = 48


@pytest.fixture(scope="module")
def quiet(world: World) -> dict[str, str]:
    """Provide the weights of an undisturbed run."""
    number = world.submit(**OPTIONS).experiment.number
    assert world.ended(number).state == "completed"
    return world.weights(number)


def told_once(world: World, number: int) -> bool:
    """Return True if no (kind, step) was stored twice, and every epoch has its validation."""
    reports = world.reports(number)
    counts = collections.Counter((report.kind, report.step) for report in reports)
    return set(counts.values()) == {1} and [s for k, s in sorted(counts) if k == "validation"] == [
        8,
        16,
        24,
        32,
        40,
        48,
    ]


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_killed_rank_costs_at_most_what_came_after_the_checkpoint(world, quiet, victim):
    number = world.lasting(**OPTIONS)
    world.checkpointed(number)
    world.ranks()[victim].kill()
    world.hurry(number, attempt=2)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 2)
    assert overview.attempts[-1].resume_from is not None
    assert told_once(world, number)
    assert world.weights(number) == quiet


def test_a_killed_launcher_takes_its_ranks_along_and_the_next_attempt_runs(world, quiet):
    number = world.lasting(**WAITING)
    world.checkpointed(number)
    ranks = list(world.ranks().values())
    (launcher,) = world.processes("kernel_backend.launch")
    launcher.kill()
    until(lambda: all(gone(rank) for rank in ranks), "its ranks die")
    world.hurry(number, attempt=2)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt, overview.trials[0].failures) == ("completed", 2, 0)
    assert told_once(world, number)
    assert world.weights(number) == quiet


def test_a_killed_service_comes_back_adopts_its_gang_and_loses_no_report(world, quiet):
    number = world.lasting(**WAITING)
    world.reached(number, 4)
    ranks = world.ranks()
    world.kill_service()
    spool = world.home / "attempts" / f"{number}.1-1" / "spool.jsonl"
    length = spool.stat().st_size
    until(lambda: spool.stat().st_size > length, "training goes on without the service")
    world.serve()
    world.hurry(number)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 1)
    assert len(ranks) == 2
    spooled = [json.loads(line) for line in spool.read_text().splitlines()]
    wanted = {(r["kind"], r["step"]) for r in spooled if r["type"] == "report"}
    assert {(report.kind, report.step) for report in world.reports(number)} == wanted
    assert told_once(world, number)
    assert world.weights(number) == quiet


def test_what_ended_while_the_service_was_dead_is_taken_in_when_it_returns(world, quiet):
    number = world.lasting(**WAITING)
    world.reached(number, 4)
    hurry = Path(str(world.overview(number).trials[0].params["hurry"]))
    world.kill_service()
    hurry.touch()
    until(lambda: not world.processes("kernel_backend.launch"), "the gang ends by itself")
    world.serve()
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 1)
    assert told_once(world, number)
    assert world.weights(number) == quiet


def test_service_and_gang_killed_together_start_again_from_the_checkpoint(world, quiet):
    number = world.lasting(**WAITING)
    world.checkpointed(number)
    world.close()
    until(lambda: discovery.find(world.home) is None, "everything is dead")
    world.serve()
    world.hurry(number, attempt=2)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 2)
    assert told_once(world, number)
    assert world.weights(number) == quiet


def test_an_idle_service_ends_itself_and_comes_back_on_use(tmp_path, quiet):
    world = World(tmp_path / "home", shared_forkserver=True)
    service = world.start_service("--Daylight.idle_timeout=1")
    assert service.wait() == 0
    assert discovery.find(world.home) is None
    assert not (world.home / "service.json").exists()
    assert world.serve().experiments() == []
    world.close()


def test_a_paused_experiment_outlives_a_restart(world, quiet):
    client = world.serve()
    number = world.lasting(**WAITING)
    world.checkpointed(number)
    client.pause(number)
    until(lambda: world.overview(number).trials[0].state == "paused", "the trial pauses")
    world.kill_service()
    client = world.serve()
    assert world.overview(number).state == "paused"
    world.hurry(number)
    client.resume(number)
    assert world.ended(number).state == "completed"
    assert world.weights(number) == quiet
