"""Test searches that keep allocations of a real Slurm: trials run once whatever is killed, with one machine's bits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.checkpoints.directory import Directory
from kernel_backend.client import Client
from kernel_backend.errors import DaylightError
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pools import PoolSettings
from kernel_backend.model.search.records import Search
from kernel_backend.text.pools import allocation_lines
from tests.support.slurm import Slurm, slurm
from tests.support.world import LASTING, World, until

pytestmark = pytest.mark.distributed

OPTIONS = {"slots": 1, "epochs": 4, "checkpoint_every": {"steps": 4}, "space": "dropout=0.1,0.2"}


@pytest.fixture(scope="module")
def site() -> Iterator[Slurm]:
    """Provide a Slurm of three nodes with one CPU each."""
    with slurm(cpus=1) as running, running.lasting_forkservers():
        yield running


@pytest.fixture(scope="module")
def world(site: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Provide a service with the pool `cluster` in addition to its own machine."""
    folder = tmp_path_factory.mktemp("allocations")
    made = World(folder / "home", shared_forkserver=True)
    made.environment |= site.environment | {"DAYLIGHT_HOME": str(made.home), "DAYLIGHT_SLOTS": "1"}
    pools = {"cluster": {"engine": "slurm", "partition": "main"}}
    (folder / "config.py").write_text(f"c.Daylight.pools = {pools!r}\n")
    made.settings = (f"--config={folder / 'config.py'}",)
    made.serve()
    yield made
    made.close()


def search(**more) -> Search:
    return Search(method="grid", parallel=1, **more)


def client(world: World) -> Client:
    return Client.connect(start=False, home=world.home)


def held(world: World) -> list[HeldAllocation]:
    """Return the allocations that searches keep or wait for."""
    return [each for pool in client(world).pools() for each in pool.allocations]


def lasting(world: World, **options) -> int:
    """Submit a search whose trials are slow until a file exists."""
    hurry = world.home / f"hurry-{len(list(world.home.glob('attempts/*')))}"
    return world.submit(LASTING, hurry=str(hurry), **OPTIONS | {"pause": 0.5} | options).experiment.number


def hurry(world: World, number: int) -> None:
    Path(str(world.overview(number).trials[0].params["hurry"])).touch()


def weights(world: World, number: int, trial: int) -> dict[str, str]:
    newest = Directory(world.home / "checkpoints" / str(number) / str(trial)).committed()[-1]
    return {part.name: part.digest for part in newest.parts}


@pytest.fixture(scope="module")
def quiet(world: World) -> list[dict[str, str]]:
    """Provide the weights of both trials from an undisturbed search on this machine."""
    number = world.submit(LASTING, search=search(), **OPTIONS).experiment.number
    assert world.ended(number).state == "completed"
    return [weights(world, number, trial) for trial in (1, 2)]


def test_trials_run_in_one_job_that_a_new_service_finds_again_and_gives_back_at_the_end(world, site, quiet):
    number = lasting(world, pool="cluster", search=search())
    world.checkpointed(number)
    (kept,) = held(world)
    assert kept.running
    assert allocation_lines(client(world).pools()) == [
        f"pool cluster: job {kept.job}, 1 slot of search #{number}: kept until "
        f"{kept_until(kept)}; {number}.1-1 runs in it"
    ]
    world.kill_service()
    world.serve()
    hurry(world, number)
    overview = world.ended(number)
    assert [trial.attempt for trial in overview.trials] == [1, 1]
    assert [weights(world, number, trial) for trial in (1, 2)] == quiet
    until(lambda: held(world) == [], "the allocation is given back")
    jobs = site.run("squeue", "-h", "-t", "all", "-n", f"daylight-{number}-allocation", "-o", "%i %T").splitlines()
    assert jobs == [f"{kept.job} COMPLETED"]


def kept_until(kept: HeldAllocation) -> str:
    assert kept.ends is not None
    return time.strftime("%H:%M", time.localtime(kept.ends))


@pytest.mark.long
def test_a_cancelled_allocation_and_one_at_its_time_limit_cost_no_bit_and_no_retry(world, site, quiet):
    number = lasting(world, pool="cluster", search=search(keep_allocation=1800.0), pause=2.0)
    world.checkpointed(number)
    (first,) = held(world)
    site.run("scancel", first.job)
    until(lambda: world.overview(number).trials[0].attempt == 2 and world.ranks(), "the trial goes on")
    (second,) = until(
        lambda: [each for each in held(world) if each.id != first.id and each.running], "another allocation is granted"
    )
    site.run("scontrol", "update", f"JobId={second.job}", "EndTime=now+100")
    until(lambda: world.overview(number).trials[0].attempt == 3, "the trial leaves before the time limit")
    hurry(world, number)
    overview = world.ended(number)
    assert [trial.failures for trial in overview.trials] == [0, 0]
    assert [weights(world, number, trial) for trial in (1, 2)] == quiet


def test_each_trial_is_a_job_of_its_own_where_no_allocation_is_kept(world, site):
    number = world.submit(pool="cluster", search=search(keep_allocation=0.0), **OPTIONS).experiment.number
    assert world.ended(number).state == "completed"
    names = site.run("squeue", "-h", "-t", "all", "-o", "%j").split()
    assert {f"daylight-{number}.1-1", f"daylight-{number}.2-1"} <= set(names)
    assert f"daylight-{number}-allocation" not in names


def test_an_allocation_is_refused_where_none_can_be_kept(world):
    with pytest.raises(DaylightError, match="--keep-allocation 1h: trials in pool local wait in no queue of a site"):
        world.submit(search=search(keep_allocation=3600.0), **OPTIONS)
    client(world).set_pool("apart", PoolSettings(engine="slurm", shared=False))
    with pytest.raises(DaylightError, match="its nodes do not see"):
        world.submit(pool="apart", search=search(keep_allocation=3600.0), **OPTIONS)
    client(world).remove_pool("apart")
