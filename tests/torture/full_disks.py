"""Disks that fill up in the middle of a save: nothing of it is left, and what was there before stays whole.

python -m tests.torture.full_disks --count 50 --seed 0
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kernel_backend.checkpoints.base import Manifest, checkpoint_id
from kernel_backend.checkpoints.directory import Directory
from tests.support.disks import mounted

FITTED = "saves just fitted in"
DISK = 2 * 2**20
PAGE = 4096
PARTS = {"model": 36 * PAGE, "optimizer": 72 * PAGE}


def run(count: int, seed: int, folder: Path) -> str:
    """Let this many saves in a folder fail, each at another point; return a sentence with the result.

    Raises AssertionError that names seed and round.
    """
    rng = random.Random(seed)
    done: Counter[str] = Counter()
    with mounted(folder, DISK) as reason:
        disk, how = folder, "limits of file sizes" if reason else "a tmpfs of 2 MB"
        place = Directory(disk / "1" / "1")
        for step in (1, 2):
            _save(place, step, rng)
        while done.total() - done[FITTED] < count:
            step = 3 + done.total()
            done[_one(place, disk, step, rng, how, f"seed {seed}, step {step}")] += 1
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(done.items()))
    return f"{count} of {count} full disks survived (seed {seed}, {how}): {kinds}"


def _one(place: Directory, disk: Path, step: int, rng: random.Random, how: str, what: str) -> str:
    """Save while disk space is short, assert that no file is damaged, and return how far the save came."""
    before = _files(disk)
    came_to = FITTED
    with _room(disk, rng, how):
        try:
            _save(place, step, rng)
        except OSError:
            left = _files(disk).keys() - before.keys()
            assert all(name.endswith(".safetensors") for name in left), f"{what}: {left}"  # whole, of no checkpoint
            came_to = f"at file {len(left) + 1} of {len(PARTS) + 1}"
            place.discard(checkpoint_id(step, 1))
            assert _files(disk) == before, what
    found, problems = place.newest_verified()
    assert problems == [], what
    assert found is not None, what
    assert (found.step == step) == (came_to == FITTED), what
    for manifest in place.committed():
        place.verify(manifest)
    for old in place.committed()[:-2]:
        place.discard(old.id)
    return came_to


def _save(place: Directory, step: int, rng: random.Random) -> None:
    written = tuple(place.write(checkpoint_id(step, 1), name, [rng.randbytes(size)]) for name, size in PARTS.items())
    place.commit(
        Manifest(
            experiment=1, trial=1, attempt=1, step=step, epoch=0.0, at=0.0, world=1, seed=0, params={}, parts=written
        )
    )


def _files(disk: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in disk.rglob("*") if path.is_file() and path.name != "filler"}


@contextlib.contextmanager
def _room(disk: Path, rng: random.Random, how: str) -> Iterator[None]:
    """Return a random part of a checkpoint's size as disk space, often just too little for its manifest."""
    parts = sum(PARTS.values())
    room = rng.choice([rng.randrange(parts), parts + rng.randrange(PAGE), parts + rng.randrange(3 * PAGE)])
    with _filled(disk, room) if how.startswith("a tmpfs") else _limited(room % max(PARTS.values())):
        yield


@contextlib.contextmanager
def _filled(disk: Path, room: int) -> Iterator[None]:
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    filler.write_bytes(bytes(max(0, free - room)))
    try:
        yield
    finally:
        filler.unlink()


@contextlib.contextmanager
def _limited(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(run(asked.count, asked.seed, Path(folder)))
