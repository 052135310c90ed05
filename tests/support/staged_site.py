"""Run a service whose nodes do not see its home: a real Slurm of nodes with their own disks, and an object store."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.model.views.overview import Overview
from tests.support.bad_network import BadNetwork, distant_store
from tests.support.slurm import NODES, Slurm, slurm
from tests.support.world import LASTING, World

PATIENCE_S = 300.0  # a machine that is shared with other tests
OPTIONS = {"epochs": 4, "checkpoint_every": {"steps": 4}}
POOL = {"engine": "slurm", "partition": "main", "shared": False}


class Site(NamedTuple):
    """Service, the Slurm that does not see the service's home, and folders on shared and on own disks."""

    world: World
    slurm: Slurm
    bucket: str
    network: BadNetwork  # to the object store
    seen: Path  # by everybody
    cache: Path  # of each node alone
    small: Path  # of each node alone, with room for a megabyte

    def weights(self, number: int) -> dict[str, str]:
        """Return the digests of the parts of the newest checkpoint."""
        newest = open_storage(f"{self.bucket}/{number}/1").committed()[-1]
        return {part.name: part.digest for part in newest.parts}

    def trained(self, number: int) -> Overview:
        """Wait until a training has completed."""
        overview = self.world.ended(number, PATIENCE_S)
        assert overview.state == "completed", (overview, self.outputs())
        return overview

    def lasting(self, source: str = LASTING, **options: Any) -> tuple[int, Path]:
        """Submit a training with slow steps; return its number, and the file that makes its steps fast."""
        hurry = self.seen / f"hurry-{time.monotonic_ns()}"
        made = self.world.submit(source, pool="cloud", pause=0.5, hurry=str(hurry), **{**OPTIONS, **options})
        return made.experiment.number, hurry

    def ranks(self, number: int, attempt: int = 1) -> dict[int, int]:
        """Return the process ids of an attempt's ranks, which its launchers have reported to the service."""
        folder = self.world.home / "attempts" / f"{number}.1-{attempt}"
        found = [json.loads(each.read_bytes()) for each in folder.glob("ranks*.json")]
        return {int(rank): pid for each in found for rank, pid in each.items()}

    def launcher(self, number: int, attempt: int) -> int:
        """Return the process id of an attempt's launcher on its first node."""
        record = self.world.home / "attempts" / f"{number}.1-{attempt}" / "launcher.json"
        return int(json.loads(record.read_bytes())["pid"])

    def left(self, name: str) -> list[Path]:
        """Return the files on the nodes' own disks that match a pattern, such as `attempts/*`."""
        return [each for node in NODES for each in self.slurm.on(node, self.cache).glob(f"daylight/*/*/{name}")]

    def outputs(self) -> str:
        """Return the output of jobs before their launchers ran, for messages of failed tests."""
        found = [each for node in NODES for each in self.slurm.on(node, self.cache).glob("daylight/*/*.out")]
        return "\n".join(f"== {each}\n{each.read_text()}" for each in found)


@contextlib.contextmanager
def staged_site(folder: Path, pools: Mapping[str, Mapping[str, Any]] | None = None) -> Iterator[Site]:
    """Provide a service with the pool `cloud` and others, of three nodes with one CPU and an own disk each."""
    service, seen, cache, small = (folder / name for name in ("service", "seen", "cache", "small"))
    for each in (service, seen, cache, small):
        each.mkdir()
    own_disks = {service: "", cache: "", small: "-o size=1m"}
    with distant_store() as (bucket, network), slurm(cpus=1, own_disks=own_disks) as running:
        world = World(service / "home", shared_forkserver=True)
        world.environment |= running.environment
        world.environment |= {"DAYLIGHT_HOME": str(world.home), "DAYLIGHT_SLOTS": "2", "XDG_CACHE_HOME": str(cache)}
        cloud, limited = {**POOL, "cache": str(cache / "inputs")}, {**POOL, "scratch": str(small)}
        every = {"cloud": cloud, "small": limited, **(pools or {})}
        settings = f"c.Daylight.pools = {every!r}\nc.Daylight.checkpoints = {bucket!r}\n"
        (service / "config.py").write_text(settings)
        world.settings = (f"--config={service / 'config.py'}",)
        world.serve()
        yield Site(world, running, bucket, network, seen, cache, small)
        world.close()
