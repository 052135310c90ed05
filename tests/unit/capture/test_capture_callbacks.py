"""Test that the analysis of functions that libraries call back is correct, and limited in its work."""

from __future__ import annotations

import pytest

from jupyter_ext.capture import capture_cell
from jupyter_ext.capture.follow import functions

pytestmark = pytest.mark.timeout(120)
CALLS = 400_000  # that may be entered for one cell: a second's work; a number that doubles at each level is beyond it

HISTORY = ["import library", "seen = []"]
FUNCTIONS = """
def measure(found):
    seen.append(1)
    right = found.guesses.argmax(1) == found.labels.long().view(-1)
    return {"accuracy": right.mean(), "loss": found.loss(measure).sum().item(), "of": helper(found.a(found.b()))}

def helper(found):
    return sorted(found.c().d(measure).e(), key=lambda each: each.f(found.g(helper)).h())
"""
USES = ["library.Trainer(measure=measure, helper=helper)", "library.Trainer([measure, {'a': helper}]).train()"]


def limited(monkeypatch: pytest.MonkeyPatch, calls: int) -> list[int]:
    entered = [0]
    enter = functions.enter

    def counted(*args):
        entered[0] += 1
        if entered[0] > calls:
            pytest.fail(f"more than {calls} calls were entered")
        return enter(*args)

    monkeypatch.setattr(functions, "enter", counted)
    return entered


@pytest.mark.parametrize("use", USES)
def test_a_callback_that_calls_its_argument_is_followed_in_bounded_work(monkeypatch: pytest.MonkeyPatch, use: str):
    entered = limited(monkeypatch, CALLS)
    found = capture_cell([*HISTORY, FUNCTIONS, f"trainer = {use}"], "def result(): return seen").source
    assert entered[0] > 0
    assert use in found  # it may have called `measure`, which appends to `seen`


def test_a_bound_method_is_bound_once(monkeypatch: pytest.MonkeyPatch):
    limited(monkeypatch, CALLS)
    kept = "class Kept:\n    def __init__(self): self.rows = []\n    def on_log(self, state):\n"
    kept += "        self.rows.append(state.a(self.on_log).b(state.c().d()))\nkept = Kept()"
    found = capture_cell(["import library", kept, "library.run(kept).go()"], "def result(): return kept.rows").source
    assert "library.run(kept).go()" in found


def test_a_call_from_within_the_same_function_is_followed_with_what_it_is_given():
    """The nested call changes the argument that the outer call passed."""
    grow = """
def grow(row, left):
    if left == 0:
        row.append(1)
        return row
    return grow(rows[left], left - 1)
"""
    found = capture_cell(["rows = [[], []]\nother = []", grow, "grow(other, 1)"], "def result(): return rows").source
    assert "grow(other, 1)" in found


def test_what_a_deeper_call_returns_is_what_the_outer_one_returns():
    pick = "def pick(left):\n    found = pick(left - 1) if left else rows\n    return found"
    history = ["rows = []", pick, "again = pick(3)", "again.append(1)"]
    assert "again.append(1)" in capture_cell(history, "def result(): return rows").source
