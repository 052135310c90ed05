"""Test that what a dataset keeps from sample to sample is told, and that caches and open files are not."""

from __future__ import annotations

import linecache
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Subset

from kernel_backend.model.reports import Guarantee
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.data import Batches, source
from tests.support.script_attempts import Job

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
    limits: list[str] = []
    made = source(data, "train_data")
    Batches(made, 4, 0, "sample", range(1), 1, 0, torch.device("cpu"), digested=digested, limit=limits.append).close()
    assert all(each.startswith("not reproducible: ") for each in limits)
    return [each.split(": ")[1] for each in limits]


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


COUNTING = """
import torch
class Samples(torch.utils.data.Dataset):
    reads = 0
    def __len__(self): return 4
    def __getitem__(self, index):
        self.reads += 1
        return torch.ones(1), torch.ones(1) * self.reads
"""
FUNCTIONS = """
def train_data(): return Samples()
def model(): return torch.nn.Linear(1, 1)
def loss(output, target): return (output - target).square().mean()
"""
LOOP = """
def train(run):
    net = torch.nn.Linear(1, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    run.restore(model=net, opt=opt)
    for epoch in run.epochs():
        for x, y in run.loader(Samples(), batch_size=2):
            (net(x) - y).square().mean().backward()
            opt.step()
"""


@pytest.mark.parametrize("form", [FUNCTIONS, LOOP])
def test_a_training_whose_dataset_counts_is_not_called_exact(tmp_path: Path, form: str):
    ended = Job(tmp_path / "job", COUNTING + form, options={"batch_size": 2, "loader_workers": 0}).run()
    said = [each.text for each in ended.records if isinstance(each, Guarantee)]
    assert ended.code == 0, ended.log
    assert (said or [ended.started.guarantee])[-1].startswith("not reproducible: Samples.reads: kept by ")
    assert not any("kept by" in note for note in ended.notes)


def test_no_later_guarantee_takes_the_place_of_what_limits_it() -> None:
    said: list[Guarantee] = []
    of = dict.fromkeys(each.name for each in fields(RankContext))
    rank = RankContext(**of | {"spool": SimpleNamespace(say=said.append), "limits": {}})
    rank.limit_guarantee("not reproducible: Samples.reads")
    rank.say_guarantee("exact to the step; rehearsed at steps 4 to 6")
    assert [each.text for each in said] == ["not reproducible: Samples.reads"] * 2
