"""Provide datasets whose samples draw random numbers, and functions that read them."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

from kernel_backend.runner.data import Batches, source


def drawn() -> torch.Tensor:
    """Return the first 64 bits that each global generator (Python, numpy, torch) draws."""
    words = np.array([random.getrandbits(64), np.random.randint(2**64, dtype=np.uint64)], dtype=np.uint64)
    return torch.cat([torch.from_numpy(words.view(np.int64)), torch.empty(1, dtype=torch.int64).random_()])


class Noisy(Dataset):
    """Map-style dataset, each sample of which draws from all three generators."""

    def __init__(self, count: int = 23) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return drawn(), index


class Flow(IterableDataset):
    """Stream of samples that draw random numbers; its length is not known."""

    def __init__(self, count: int = 23) -> None:
        self.count, self.epoch, self.reads = count, 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        for number in range(self.count):
            self.reads += 1
            yield drawn(), 1000 * self.epoch + number


class Keeping(Flow):
    """A stream that finds its place itself."""

    begin = next = 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        begin, self.begin = self.begin, 0
        for number in range(begin, self.count):
            self.reads += 1
            self.next = number + 1
            yield drawn(), 1000 * self.epoch + number

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next, "of": (self.epoch, torch.tensor([1.5]))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert (state["of"][0], float(state["of"][1])) == (self.epoch, 1.5)
        self.begin = state["next"]


def batches(
    value: Any,
    mine: range = range(1),
    count: int = 1,
    workers: int | None = 0,
    batch_size: int = 6,
    device: str = "cpu",
    **more: Any,
) -> Batches:
    """Return the dataset in batches, cut for some of `count` logical ranks."""
    found = source(value, "train_data")
    return Batches(found, batch_size, 1, "sample", mine, count, workers, torch.device(device), **more)


def loader_workers() -> list[BaseProcess]:
    """Return the living loader workers of this process; a service that other tests share may be among its children."""
    return [each for each in multiprocessing.active_children() if not isinstance(each, ForkServerProcess)]


def rows(steps: Any) -> list[list[int]]:
    """Return the random numbers of each sample, followed by its index, in order."""
    shares = [share for step in steps for share in step if share.samples]
    return [[*noise.tolist(), int(index)] for share in shares for noise, index in zip(*share.data, strict=True)]
