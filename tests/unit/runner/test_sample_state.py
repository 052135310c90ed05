"""Test that what a dataset keeps from sample to sample is told, and that caches and open files are not."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Subset

from kernel_backend.runner.data import Batches, source

PROGRAM = """
import torch
from torch.utils.data import Dataset, default_collate
count, cache, seen = 0, {}, []
class Samples(Dataset):
    def __init__(self):
        self.reads, self.cache, self.file, self.opened, self.last = 0, {}, None, False, torch.zeros(1)
    def __len__(self):
        return 8
    def __getitem__(self, index):
        global count
        KEPT
        return torch.ones(1)
def collate(samples):
    global count
    COLLATE
    return default_collate(samples)
"""


def program(kept: str, collate: str = "pass") -> dict[str, Any]:
    text = PROGRAM.replace("KEPT", kept).replace("COLLATE", collate)
    file = f"/program/{abs(hash(text))}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    held: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, file, "exec"), held)
    return held


def told(data: Any, digested: bool = True) -> list[str]:
    notes: list[str] = []
    made = source(data, "train_data")
    Batches(made, 4, 0, "sample", range(1), 1, 0, torch.device("cpu"), notes.append, digested).close()
    return [each.split(": ")[0] for each in notes]


@pytest.mark.parametrize(
    ("kept", "names"),
    {
        "self.reads += 1": ["Samples.reads"],
        "self.last.add_(1)": ["Samples.last"],
        "count += 1; seen.append(index)": ["count, seen"],
        "self.cache[index] = 1; cache[index] = 1": [],
        "self.file, self.opened = self.file or open('/dev/null'), True": [],
        "count": [],
    }.items(),
)
def test_what_a_dataset_counts_is_told_and_a_cache_is_not(kept, names):
    assert told(Subset(program(kept)["Samples"](), range(4))) == names


def test_what_a_collate_function_counts_is_told():
    held = program("pass", "count += 1")
    assert told(DataLoader(held["Samples"](), collate_fn=held["collate"])) == ["count"]


def test_it_is_told_once_of_the_data_that_is_trained():
    assert told(program("self.reads += 1")["Samples"](), digested=False) == []
