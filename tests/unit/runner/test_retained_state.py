"""Test that what users' code keeps from step to step is saved and restored, or named."""

from __future__ import annotations

import json
import linecache
from typing import Any

import pytest
import torch

from kernel_backend.checkpoints.writer import flatten, unflatten
from kernel_backend.runner.determinism.retained_state import RetainedState

PROGRAM = """
import numpy as np
import torch
from collections import Counter, deque
from torch import nn
class Meter:
    def __init__(self): self.seen, self.mean, self.open = 0, None, iter(())
    def add(self, value):
        self.seen += 1
        self.mean = value if self.mean is None else 0.9 * self.mean + 0.1 * value
        self.open = iter(())
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls, self.last, self.scale = nn.Linear(1, 1), 0, None, 2.0
        self.register_buffer("total", torch.zeros(()))
    def forward(self, x):
        self.calls += 1
        self.total += 1
        self.last = self.layer(x)
        return self.last
count, best, meter, window, seen, names, net = 0, None, Meter(), deque(maxlen=2), {}, set(), Net()
array, mean, history, late, sizes = np.zeros(2), torch.zeros(2), [], None, Counter()
def counted():
    number = 0
    def call():
        nonlocal number
        number += 1
        return number
    return call
call = counted()
def step(value):
    global count, best, array, late
    KEPT
    return value
"""
KEPT = {
    "count += 1": "count",
    "best = value if best is None else max(best, value)": "best",
    "meter.add(value)": "(meter.seen, meter.mean)",
    "meter.seen += 1": "meter.seen",
    "window.append(value)": "(window, window.maxlen)",
    "seen[('a', count)] = seen.get(('a', count), 0) + value": "seen",
    "names.add(value)": "sorted(names)",
    "array = array + value": "array.tolist()",
    "array[0] += value": "array.tolist()",
    "mean.mul_(0.9).add_(value)": "mean.tolist()",
    "history.append((value, 'a'))": "history",
    "sizes.update([value])": "(sizes, type(sizes))",
    "call()": "call()",
    "net(torch.ones(1, 1))": "net.calls",
}


def program(kept: str) -> dict[str, Any]:
    source = PROGRAM.replace("KEPT", kept)
    file = f"/program/{abs(hash(source))}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    held: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, file, "exec"), held)
    return held


def through_a_checkpoint(kept: RetainedState) -> dict[str, Any]:
    tree, tensors = flatten(kept.state_dict())
    state: dict[str, Any] = unflatten(json.loads(json.dumps(tree)), tensors)
    return state


def called(held: dict[str, Any]) -> dict[str, Any]:
    return {"step": held["step"], "net": held["net"]}


@pytest.mark.parametrize(("kept", "shown"), KEPT.items(), ids=KEPT)
def test_what_code_keeps_goes_on_where_a_checkpoint_left_it(kept, shown):
    killed, resumed = program(kept), program(kept)
    state = RetainedState(called(killed))
    for value in (3.0, 1.0, 2.0):
        killed["step"](value)
    RetainedState(called(resumed)).load_state_dict(through_a_checkpoint(state))
    for held in (killed, resumed):
        held["step"](5.0)
    assert eval(shown, resumed) == eval(shown, killed)


def test_containers_and_objects_stay_the_same_ones():
    held = program("window.append(value); meter.add(value)")
    before, kept = (held["window"], held["meter"]), RetainedState(called(held))
    held["step"](1.0)
    kept.load_state_dict(through_a_checkpoint(kept))
    assert (held["window"], held["meter"]) == before


def test_what_checkpoints_hold_otherwise_is_left_out():
    held = program("count += 1; seen['a'] = value; meter.add(value); net(torch.ones(1, 1))")
    names = RetainedState(called(held), [held["seen"], {"of": held["meter"]}, held["net"]]).names
    assert sorted(names) == ["Net.calls", "Net.last", "count"]


@pytest.mark.parametrize(
    ("kept", "unheld"),
    {
        "late = late or Meter()": ["late"],
        "history.append(object())": ["history"],
        "history.extend([value] * 200_000)": ["history"],
        "best = open('/dev/null')": [],
        "net(torch.ones(1, 1)); meter.add(value)": [],
    }.items(),
)
def test_what_cannot_be_saved_is_told_at_the_first_checkpoint_that_lacks_it(kept, unheld):
    held, told = program(kept), list[list[str]]()
    state = RetainedState(called(held))
    state.tell = lambda names: told.append(list(names))
    held["step"](1.0)
    through_a_checkpoint(state), through_a_checkpoint(state)
    assert told == ([unheld] if unheld else [])


def test_an_ended_state_changes_no_more():
    held = program("count += 1; mean.add_(1)")
    kept = RetainedState(called(held))
    held["step"](1.0)
    kept.end()
    held["step"](1.0)
    resumed = program("count += 1; mean.add_(1)")
    RetainedState(called(resumed)).load_state_dict(through_a_checkpoint(kept))
    assert (resumed["count"], resumed["mean"].tolist()) == (1, torch.ones(2).tolist())


def test_values_that_refuse_to_be_read_or_put_back_are_told_and_end_nothing():
    held, told = program("history.append(value); meter.add(value)"), list[list[str]]()
    kept = RetainedState(called(held))
    held["step"](1.0)
    saved = through_a_checkpoint(kept)

    class Refusing(list[float]):
        def __iter__(self) -> Any:
            raise RuntimeError("not now")

        def clear(self) -> None:
            raise RuntimeError("not now")

    held["history"] = Refusing([1.0])
    kept.tell = lambda names: told.append(list(names))
    assert "mean" in str(through_a_checkpoint(kept))
    kept.load_state_dict(saved)
    assert (told, held["meter"].seen) == ([["history"], ["history"]], 1)
