"""No two samples of a training draw the same random numbers: not over workers, logical ranks or epochs.

python -m tests.torture.draws --count 1000000
"""

from __future__ import annotations

import argparse
import random

import torch

from kernel_backend.runner.data import Batches, source
from tests.support.samples import Noisy

RANKS, WORKERS, EPOCHS = 3, 2, 4
GENERATORS = ("python", "numpy", "torch")


def run(count: int, seed: int) -> str:
    """Draw 64 bits for each of this many samples from each generator; return a sentence with the result.

    Raises AssertionError that names the seed if two samples, or two generators, draw the same.
    """
    draws = torch.cat([_of_rank(rank, count, seed) for rank in range(RANKS)])
    assert len(draws) == count, f"{len(draws)} samples, not {count} (seed {seed})"
    for name, words in zip(GENERATORS, draws.T, strict=True):
        twins = count - len(words.unique())
        assert twins == 0, f"{twins} of {count} samples drew from {name} what another had drawn (seed {seed})"
    assert len(draws.unique()) == draws.numel(), f"two generators drew the same (seed {seed})"
    return f"{count:,} samples over {EPOCHS} epochs, {RANKS} ranks, {WORKERS} workers each: no draw came twice"


def _of_rank(rank: int, count: int, seed: int) -> torch.Tensor:
    samples = Noisy(count // EPOCHS)
    data = Batches(
        source(samples, "train_data"), 512, seed, "sample", range(rank, rank + 1), RANKS, WORKERS, torch.device("cpu")
    )
    assert data.per_epoch is not None
    found = [step[0].data[0] for step in data.steps(0, EPOCHS * data.per_epoch)]
    data.close()
    return torch.cat(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    asked = parser.parse_args()
    print(run(asked.count, asked.seed))
