"""Test which state of users' functions is found that they keep from one batch to the next."""

from __future__ import annotations

import linecache

import pytest

from kernel_backend.runner.determinism.state_between_calls import state_between_calls

BEFORE = """
import torch
from collections import deque
from torch import nn
class Meter:
    def __init__(self): self.seen = 0
    def note(self): self.seen += 1
center, calls, cache, queue, seen, meter = torch.zeros(2), 0, None, deque(maxlen=2), {}, Meter()
history, net, scale = [], nn.Linear(2, 2), 2.0
def counted():
    number = 0
    def loss(output, target):
        nonlocal number
        number += 1
        return output * number
    return loss
def loss(output, target):
"""
KEPT = {
    "global center; center = 0.9 * center + output; return output - center": {"center": True},
    "center.mul_(0.9).add_(output); return output - center": {"center": True},
    "center[0] = output[0]; return output - center": {"center": True},
    "global calls; calls += 1; return output * calls": {"calls": True},
    "global cache; cache = output if cache is None else cache; return output - cache": {"cache": True},
    "queue.append(output); return output - queue[0]": {"queue": True},
    "old = seen.setdefault('m', 0); seen['m'] = old + 1; return output": {"seen": True},
    "seen['m'] = seen.get('m', 0) + 1; return output": {"seen": True},
    "meter.seen += 1; return output / meter.seen": {"meter": True},
    "history.append(output.item()); return output": {"history": False},
    "history = []; history.append(output); return history[0] * scale": {},
    "net.last = output; torch.backends.cudnn.enabled = True; return net(output)": {},
    "return [queue for queue in output][0]": {},
}


def function(source, name="loss"):
    file = f"/program/{abs(hash(source))}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    held = {"__name__": "program"}
    exec(compile(source, file, "exec"), held)
    return held[name]


@pytest.mark.parametrize(("body", "expected"), KEPT.items(), ids=KEPT)
def test_what_a_function_changes_outside_of_itself_is_found_and_whether_it_is_read(body, expected):
    assert state_between_calls({"loss": function(f"{BEFORE}    {body}\n")}) == expected


def test_a_counter_of_an_enclosing_function_is_found():
    assert state_between_calls({"loss": function(f"{BEFORE}    return output\n", "counted")()}) == {"number": True}


def test_what_a_function_that_is_called_changes_is_found():
    helper = "def helper(output):\n    seen['m'] = output\n    return seen['m']\n"
    source = f"{BEFORE}    return helper(output)\n{helper}"
    assert state_between_calls({"loss": function(source)}) == {"seen": True}
