"""Provide a definition that reads samples of a store as a local folder, and count what is asked of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import fsspec
import numpy as np

SAMPLES = 32
# One epoch has SAMPLES / batch size steps; its samples are the files of `train`, in order of their names.
FUNCTIONS = """
import glob
import numpy as np
import torch
from torch import nn

def train_data(train):
    files = sorted(glob.glob(train + "/*/*.npy"))
    x = torch.stack([torch.from_numpy(np.load(file)) for file in files])
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))

def model():
    return nn.Linear(4, 1)

def optimizer(params, lr=0.1):
    return torch.optim.SGD(params, lr=lr)

def loss(output, target):
    return nn.functional.mse_loss(output, target)
"""


def make_samples(folder: Path) -> Path:
    """Write samples, the same for all tests, to a folder; return it."""
    for number in range(SAMPLES):
        (folder / str(number % 4)).mkdir(parents=True, exist_ok=True)
        values = np.random.default_rng(number).standard_normal(4)
        np.save(folder / str(number % 4) / f"sample {number:02}.npy", values.astype("float32"))
    return folder


def put_samples(folder: Path, url: str) -> Path:
    """Write samples to a folder, and copy them to a folder of a store; return the local one."""
    make_samples(folder)
    fsspec.filesystem("s3").put(f"{folder}/", f"{url}/", recursive=True)
    return folder


def asked(requests: Iterable[str], nodes: int, starts: int = 1) -> tuple[int, int, bool]:
    """Return how often samples were listed, how many are fetched once by each node, and whether little else was asked.

    `requests` are the methods and paths of all requests, as BadNetwork has them, of so many trainings on each node.
    """
    mine = [each for each in requests if "train" in each]
    gets = Counter(each for each in mine if each.startswith("GET") and "list-type" not in each)
    listings = sum("list-type" in each for each in mine)
    assert set(gets.values()) == {nodes}, gets
    return listings, len(gets), len(mine) <= nodes * starts * (SAMPLES + 10)
