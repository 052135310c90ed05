"""Gangs on nodes of a real Slurm that do not see the service's home: files go through the service."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kernel_backend.checkpoints.storage import open_storage
from tests.support.object_store import object_store
from tests.support.slurm import NODES, Slurm, slurm
from tests.support.world import LASTING, World, until

pytestmark = pytest.mark.distributed

PATIENCE_S = 300.0  # a machine that is shared with other tests
OPTIONS = {"epochs": 4, "checkpoint_every": {"steps": 4}}


class Site(NamedTuple):
    """A service, the Slurm that does not see its home, and folders that both see, or each node alone."""

    world: World
    slurm: Slurm
    bucket: str
    seen: Path  # by everybody
    cache: Path  # of each node alone

    def weights(self, number: int) -> dict[str, str]:
        """The digests of the parts of the newest checkpoint."""
        newest = open_storage(f"{self.bucket}/{number}/1").committed()[-1]
        return {part.name: part.digest for part in newest.parts}

    def lasting(self, **options) -> tuple[int, Path]:
        """Submit a training of slow steps; its number, and the file by which it is hurried."""
        hurry = self.seen / f"hurry-{time.monotonic_ns()}"
        made = self.world.submit(LASTING, pool="cloud", pause=0.5, hurry=str(hurry), **{**OPTIONS, **options})
        return made.experiment.number, hurry

    def ranks(self, number: int, attempt: int = 1) -> dict[int, int]:
        """The process ids of an attempt's ranks, as its launchers have told the service."""
        folder = self.world.home / "attempts" / f"{number}.1-{attempt}"
        found = [json.loads(each.read_bytes()) for each in folder.glob("ranks*.json")]
        return {int(rank): pid for each in found for rank, pid in each.items()}

    def left(self, name: str) -> list[Path]:
        """What is left on the nodes' own disks under a name, such as `attempts/*`."""
        return [each for node in NODES for each in self.slurm.on(node, self.cache).glob(f"daylight/*/*/{name}")]

    def outputs(self) -> str:
        """What jobs have printed before their launchers ran, for messages of failed tests."""
        found = [each for node in NODES for each in self.slurm.on(node, self.cache).glob("daylight/*/*.out")]
        return "\n".join(f"== {each}\n{each.read_text()}" for each in found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service with the pool `cloud`, whose three nodes with one CPU each have disks of their own."""
    folder, seen = tmp_path_factory.mktemp("service"), tmp_path_factory.mktemp("seen")
    cache = tmp_path_factory.mktemp("cache")
    with object_store() as bucket, slurm(cpus=1, own_disks=(folder, cache)) as running:
        world = World(folder / "home", shared_forkserver=True)
        world.environment |= running.environment
        world.environment |= {"DAYLIGHT_HOME": str(world.home), "DAYLIGHT_SLOTS": "2", "XDG_CACHE_HOME": str(cache)}
        pools = {"cloud": {"engine": "slurm", "partition": "main", "shared": False}}
        settings = f"c.Daylight.pools = {pools!r}\nc.Daylight.checkpoints = {bucket!r}\n"
        (folder / "config.py").write_text(settings)
        world.settings = (f"--config={folder / 'config.py'}",)
        world.serve()
        yield Site(world, running, bucket, seen, cache)
        world.close()


@pytest.fixture(scope="module")
def quiet(site: Site) -> dict[str, str]:
    """The weights of a run on two slots of the service's machine."""
    number = site.world.submit(**OPTIONS).experiment.number
    assert site.world.ended(number, PATIENCE_S).state == "completed"
    return site.weights(number)


@pytest.mark.parametrize("backend", ["torch", "horovod"])
def test_two_nodes_that_see_no_home_have_the_bits_of_two_slots_of_one_node(site, quiet, backend):
    number = site.world.submit(pool="cloud", backend=backend, **OPTIONS).experiment.number
    overview = site.world.ended(number, PATIENCE_S)
    assert (overview.state, overview.attempts[-1].backend) == ("completed", backend), site.outputs()
    assert len({node.name for node in overview.attempts[-1].nodes}) == 2
    assert site.weights(number) == quiet
    until(lambda: site.left("attempts/*") == [], "the nodes' folders of the attempt are gone")
