"""Random harm to committed checkpoints: all of it is noticed, and the newest whole one is taken.

python -m tests.torture.corruptions --count 1000 --seed 0
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable

import torch

from kernel_backend.checkpoints.base import Checkpoints, Manifest, checkpoint_id
from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.checkpoints.writer import pieces
from tests.torture.files import Files

STEPS = (5, 10, 15, 20)
PARTS = ("model", "optimizer")
MANIFEST = "manifest.json"
PAGE = 4096

State = dict[str, bytes]  # every file of a place by its name


def run(count: int, seed: int, where: str) -> str:
    """Damage checkpoints under `where`, a folder or URL, this often; return a sentence with the result.

    Raises AssertionError that names seed and round.
    """
    rng = random.Random(seed)
    place, files = open_storage(where), Files(where)
    pristine = _committed(place, files, rng)
    done: Counter[str] = Counter()
    rounds = 0
    while done.total() < count:
        rounds += 1
        files.become(pristine)
        state, kinds = _harmed(pristine, rng, min(rng.randint(1, 3), count - done.total()))
        files.become(state)
        _check(place, files, pristine, state, f"seed {seed}, round {rounds}: {kinds}")
        done.update(kinds)
    kinds_done = ", ".join(f"{number} {kind}" for kind, number in sorted(done.items()))
    return f"{done.total()} of {count} corruptions noticed, the right fall-back taken (seed {seed}): {kinds_done}"


def _committed(place: Checkpoints, files: Files, rng: random.Random) -> State:
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    for step in STEPS:
        name = checkpoint_id(step, 1)
        tensors = {part: {"w": torch.randn(40, 70, generator=generator)} for part in PARTS}
        written = tuple(place.write(name, part, pieces(tensors[part])) for part in PARTS)
        place.commit(
            Manifest(
                experiment=1, trial=1, attempt=1, step=step, epoch=step / 10, at=0.0, world=1, seed=0,
                params={"lr": 0.1}, metrics={"loss": 1 / step}, parts=written, state={"step": step},
            )
        )  # fmt: skip
    return files.all()


def _harmed(pristine: State, rng: random.Random, count: int) -> tuple[State, list[str]]:
    """Return the files after several changes, each to an intact checkpoint, and a description of the changes."""
    state, kinds = dict(pristine), []
    while len(kinds) < count and len(_damaged(pristine, state)) < len(STEPS):
        kind = rng.choice(list(HARMS))
        after = dict(state)
        HARMS[kind](after, rng)
        if _damaged(pristine, after) > _damaged(pristine, state):
            state = after
            kinds.append(kind)
    return state, kinds


def _check(place: Checkpoints, files: Files, pristine: State, state: State, what: str) -> None:
    damaged = _damaged(pristine, state)
    whole = [checkpoint_id(step, 1) for step in STEPS if checkpoint_id(step, 1) not in damaged]
    found, problems = place.newest_verified()
    assert (found.id if found else None) == (whole[-1] if whole else None), what
    for part in PARTS if found else ():
        assert place.read(found, part) == pristine[f"{found.id}/{part}.safetensors"], what
    newer = {each for each in damaged if not whole or _step(each) > _step(whole[-1])}
    told_of = {each for each in newer if f"{each}/{MANIFEST}" in state}  # without a manifest there was no checkpoint
    assert len(problems) == len(told_of), f"{what}: {problems}"
    listed = {manifest.id for manifest in place.committed()}
    assert listed >= set(whole), what
    assert not listed & newer, what
    names = files.names()
    for each in told_of:
        bad = (f"{each}.bad/", f"{each}/{MANIFEST}.bad")  # a folder's way, and an object store's
        assert any(name.startswith(bad) for name in names), f"{what}: {each} is not set aside"


def _damaged(pristine: State, state: State) -> set[str]:
    names = pristine.keys() | state.keys()
    return {name.partition("/")[0] for name in names if pristine.get(name) != state.get(name)}


def _step(checkpoint: str) -> int:
    return int(checkpoint.partition("-")[0])


def _any_file(state: State, rng: random.Random) -> str:
    return rng.choice(sorted(name for name in state if state[name]))


def _flip(state: State, rng: random.Random) -> None:
    name = _any_file(state, rng)
    data = bytearray(state[name])
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    state[name] = bytes(data)


def _zero(state: State, rng: random.Random) -> None:
    name = _any_file(state, rng)
    data = bytearray(state[name])
    begin = rng.randrange(0, len(data), PAGE)
    end = min(begin + PAGE, len(data))
    data[begin:end] = bytes(end - begin)
    state[name] = bytes(data)


def _truncate(state: State, rng: random.Random) -> None:
    name = _any_file(state, rng)
    state[name] = state[name][: rng.randrange(len(state[name]))]


def _extend(state: State, rng: random.Random) -> None:
    state[_any_file(state, rng)] += rng.choice([b"\0", b" ", b"\n", rng.randbytes(PAGE)])


def _remove_part(state: State, rng: random.Random) -> None:
    del state[rng.choice(sorted(name for name in state if not name.endswith(MANIFEST)))]


def _remove_manifest(state: State, rng: random.Random) -> None:
    if manifests := sorted(name for name in state if name.endswith(MANIFEST)):
        del state[rng.choice(manifests)]


def _swap_within(state: State, rng: random.Random) -> None:
    checkpoint = checkpoint_id(rng.choice(STEPS), 1)
    _swap(state, *(f"{checkpoint}/{part}.safetensors" for part in PARTS))


def _swap_between(state: State, rng: random.Random) -> None:
    file = rng.choice([MANIFEST, *(f"{part}.safetensors" for part in PARTS)])
    _swap(state, *(f"{checkpoint_id(step, 1)}/{file}" for step in rng.sample(STEPS, 2)))


def _swap(state: State, one: str, other: str) -> None:
    if one in state and other in state:
        state[one], state[other] = state[other], state[one]


HARMS: dict[str, Callable[[State, random.Random], None]] = {
    "bits flipped": _flip,
    "pages zeroed": _zero,
    "files truncated": _truncate,
    "files extended": _extend,
    "parts missing": _remove_part,
    "manifests missing": _remove_manifest,
    "parts swapped": _swap_within,
    "files swapped between checkpoints": _swap_between,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(run(asked.count, asked.seed, folder))
