"""Train on data of a store, while whatever takes part is killed at random instants.

    python -m tests.torture.inputs --count 100

Every training begins with nothing on the node. Each must end with the weights of one that reads a local folder, no file
of the cache may differ from its object, and no object that was whole is fetched again.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path
from urllib.parse import unquote

import fsspec
import numpy as np

from kernel_backend.inputs.node_cache import NodeCache
from kernel_backend.model.cluster.input_cache import ROOT
from kernel_backend.model.states import EXPERIMENT_ENDED
from tests.support.bad_network import BadNetwork, distant_store
from tests.support.remote_samples import FUNCTIONS
from tests.support.submitted import daylight
from tests.support.world import World, until
from tests.torture.victims import kill

OBJECTS, ROWS = 24, 20_000
_VICTIMS = ("rank", "launcher", "service", "fetcher")
LINE = (
    "submit",
    "train.py",
    "--slots",
    "2",
    "--epochs",
    "2",
    "--batch-size",
    "8",
    "--threads",
    "1",
    "--quiet",
    "--again",
)


class Torment:
    """Trainings of one definition on data of a store, whose processes are killed."""

    def __init__(self, world: World, url: str, network: BadNetwork, folder: Path, seed: int) -> None:
        self._world, self._url, self._network, self._draw = world, url, network, random.Random(seed)
        self._project, self._cache = folder / "project", Path(os.environ[ROOT])
        self._project.mkdir()
        (self._project / "train.py").write_text(FUNCTIONS.replace("np.load(file)", "np.load(file)[:4]"))
        self.kills = self.repeated = 0
        self._data: dict[str, bytes] = {}
        local = folder / "local"
        for number in range(OBJECTS):
            path = local / str(number % 4) / f"{number:02}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.random.default_rng(number).standard_normal(ROWS).astype("float32"))
            self._data[path.name] = path.read_bytes()
            fsspec.filesystem("s3").put_file(str(path), f"{url}/train/{number % 4}/{path.name}")
        self._expected = self._weights(self._submit(f"train={local}"))

    def train(self, most: int) -> None:
        """Train once, with up to `most` kills."""
        NodeCache(self._cache).clean()
        self._network.requests.clear()
        fetch = self._draw.choice(("before", "during"))
        number = self._submit("--max-restarts", "1000", "--fetch", fetch, "--data", f"train={self._url}/train")
        whole: set[str] = set()
        while self._world.overview(number).experiment.state not in EXPERIMENT_ENDED:
            time.sleep(self._draw.uniform(0.0, 1.0))
            victim = self._draw.choice(_VICTIMS)
            if most > 0 and kill(self._world, number, 1, victim, self._draw):
                most, self.kills = most - 1, self.kills + 1
                gets = self._gets()
                self.repeated += len(whole & gets)
                whole |= self._whole()
                self._network.requests.clear()
        assert self._weights(number) == self._expected, f"#{number}"
        until(lambda: len(self._whole()) == OBJECTS, "all objects are there")

    def _submit(self, *words: str) -> int:
        done = daylight(self._world, *LINE, *words, cwd=self._project)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.split()[0].lstrip("#"))

    def _weights(self, number: int) -> dict[str, str]:
        ended = self._world.ended(number, patience=1200)
        assert ended.state == "completed", ended
        return self._world.weights(number)

    def _whole(self) -> set[str]:
        """Return the names of the objects that are whole; raise AssertionError if one differs from what is stored."""
        names = {data: name for name, data in self._data.items()}
        return {names[path.read_bytes()] for path in self._cache.glob("objects/*/*") if path.suffix != ".part"}

    def _gets(self) -> set[str]:
        found = (unquote(each).rpartition("/")[2] for each in self._network.requests if each.startswith("GET"))
        return set(found) & self._data.keys()


def main() -> None:
    """Print how many trainings and kills there were, and how many whole objects were fetched again: none may be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        distant_store() as (url, network),
    ):
        os.environ[ROOT] = f"{folder}/cache"
        world = World(Path(folder) / "home", shared_forkserver=True)
        world.serve()
        try:
            torment, trainings = Torment(world, url, network, Path(folder), given.seed), 0
            network.bandwidth = 600_000.0
            while torment.kills < given.count:
                torment.train(min(8, given.count - torment.kills))
                trainings += 1
        finally:
            world.close()
    print(
        f"{trainings} trainings, {torment.kills} kills: equal weights; {torment.repeated} whole objects fetched again"
    )
    assert not torment.repeated


if __name__ == "__main__":
    main()
