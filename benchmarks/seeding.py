"""Measure derived seeds against torch's own way: seeding a sample, ordering an epoch, and starting anywhere within it.

    python benchmarks/seeding.py [--rounds 7]

- Seeding a sample, against `torch.manual_seed`, `numpy.random.seed` and `random.seed`, as one would write it.
- The same beside a sample that decodes and augments a picture of 224 by 224.
- The order of a batch of 256 out of 10^6, 10^7 and 10^9 samples, against a RandomSampler of torch, beginning included.
- From a new process' data to its first batch at 1 %, 50 % and 99 % of 10^7 samples, against torchdata's
  StatefulDataLoader, which skips to its place, where that is installed.

Each figure is the best of the rounds; ratios below 1.00 are faster than the peer.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from torch.utils.data import BatchSampler, Dataset, RandomSampler

from kernel_backend.runner.data import Batches, source
from kernel_backend.runner.data.permutation import Permutation
from kernel_backend.runner.determinism import seeds

BATCH = 256
SAMPLES = 10**7


class Numbers(Dataset):  # type: ignore[type-arg]
    """Dataset whose samples cost nothing, so that only the order and the seeding are measured."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return index


def best(call: Callable[[], object], rounds: int, number: int = 1) -> float:
    """Return the seconds of a call, in the best round."""
    return min(timeit.repeat(call, number=number, repeat=rounds)) / number


def by_hand(value: int) -> None:
    torch.manual_seed(value)
    np.random.seed(value & 0xFFFFFFFF)
    random.seed(value)


def picture(data: bytes) -> torch.Tensor:
    """Decode, flip, crop and jitter a picture, the least that an augmenting dataset does."""
    pixels = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(3, 256, 256)
    top, left = random.randrange(32), int(np.random.randint(32))
    crop = pixels[:, top : top + 224, left : left + 224].float().div_(255)
    return torch.flip(crop, [2]).mul_(0.8 + 0.4 * float(torch.rand(())))


def a_sample(rounds: int) -> None:
    draws, positions, data = seeds.Draws(0, "sample"), itertools.count(), bytes(3 * 256 * 256)
    ours = best(lambda: draws.at(next(positions)), rounds, 20_000) * 1e6
    theirs = best(lambda: by_hand(seeds.mix(0, "sample", next(positions))), rounds, 2_000) * 1e6
    work = best(lambda: picture(data), rounds, 200) * 1e6
    print(
        f"seeding a sample: {ours:.1f} us, {ours / theirs:.3f} x torch.manual_seed + numpy + random ({theirs:.1f} us)"
    )
    print(f"  beside a picture's crop, flip and jitter ({work:.0f} us): {ours / work:.1%} more")


def an_order(count: int, rounds: int) -> None:
    """Measure the order of a batch in the middle of an epoch, and the start of the epoch with its first batch."""
    order, middle = Permutation(0, 1, count), count // 2
    batch = best(lambda: order.slice(middle, middle + BATCH), rounds, 200) * 1e6
    begin = best(lambda: Permutation(0, 1, count).slice(0, BATCH), rounds) * 1e3
    text = f"order of {count:>13,}: {batch:6.1f} us a batch of {BATCH}, {begin:7.1f} ms to begin an epoch"
    if count > SAMPLES:
        print(f"{text}; RandomSampler would hold {8 * count / 1e9:.0f} GB")
        return
    sampler = RandomSampler(range(count), generator=torch.Generator())
    theirs = best(lambda: next(iter(BatchSampler(sampler, BATCH, drop_last=False))), rounds) * 1e3
    print(f"{text}, {begin / theirs:.3f} x RandomSampler ({theirs:.1f} ms)")


def a_start(share: float, rounds: int) -> None:
    """Measure the start of a training in the middle of an epoch, to its first batch."""
    first = int(share * SAMPLES) // BATCH

    def ours() -> None:
        found = source(Numbers(SAMPLES), "train_data")
        data = Batches(found, BATCH, 0, "sample", range(1), 1, 0, torch.device("cpu"))
        next(data.steps(first, None))

    seconds = best(ours, rounds)
    print(f"start at {share:4.0%} of {SAMPLES:,}: {seconds:6.3f} s", end="")
    peer = stateful(first)
    print(
        "; StatefulDataLoader is not installed"
        if peer is None
        else f", {seconds / peer:.3f} x StatefulDataLoader ({peer:.2f} s)"
    )


def stateful(first: int) -> float | None:
    """Return the seconds that StatefulDataLoader takes to its next batch from a saved state.

    None if it is not installed.
    """
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader
    except ImportError:
        return None

    def loader() -> StatefulDataLoader:
        return StatefulDataLoader(Numbers(SAMPLES), BATCH, shuffle=True)

    before = loader()
    for _ in itertools.islice(before, first):
        pass
    state, after = before.state_dict(), loader()
    began = time.perf_counter()
    after.load_state_dict(state)
    next(iter(after))
    return time.perf_counter() - began


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="of each measurement (default: 7)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    a_sample(rounds)
    for count in (10**6, SAMPLES, 10**9):
        an_order(count, rounds)
    for share in (0.01, 0.5, 0.99):
        a_start(share, rounds)


if __name__ == "__main__":
    main()
