"""What a Trainer's callbacks and its subclass keep is restored as what it was."""

from __future__ import annotations

import argparse
from collections import defaultdict, deque

import torch

from kernel_backend.runner.forms.trainer.state import Attributes, OwnAttributes


class Subclass(argparse.ArgumentParser):
    """As a user's or TRL's subclass of a library's class: with settings, sums and things that no checkpoint holds."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate, self.seen, self.tools = rate, 0, object()
        self.sums = {"train": defaultdict(list), "eval": defaultdict(list)}
        self.last, self.mean = deque(maxlen=2), torch.zeros(2)

    def step(self) -> None:
        self.seen, self.prog = self.seen + 1, f"{self.seen}"
        self.sums["train"]["loss"].append(float(self.seen))
        self.last.append(self.seen)
        self.mean = self.mean + 1


def trained(rate: float, steps: int) -> tuple[Subclass, OwnAttributes]:
    found = Subclass(rate)
    part = OwnAttributes(found, "argparse")
    for _ in range(steps):
        found.step()
    return found, part


def test_what_a_subclass_changes_in_itself_is_restored():
    whole, _ = trained(0.1, 5)
    _, part = trained(0.1, 3)
    resumed, own = trained(0.1, 0)
    own.load_state_dict(part.state_dict())
    for _ in range(2):
        resumed.step()
    assert (resumed.seen, resumed.sums, resumed.last) == (whole.seen, whole.sums, whole.last)
    assert resumed.last.maxlen == 2
    assert resumed.sums["eval"]["new"] == []
    assert torch.equal(resumed.mean, whole.mean)
    assert "prog" not in str(part.state_dict())  # of the library, whose state is in other parts


def test_a_setting_of_other_hyperparameters_is_not_replaced():
    _, part = trained(0.1, 3)
    other, own = trained(0.2, 0)
    own.load_state_dict(part.state_dict())
    assert (other.rate, other.seen) == (0.2, 3)


def test_a_callback_keeps_its_containers():
    callback = Subclass(0.1)
    callback.step()
    other = Subclass(0.1)
    restored = Attributes({"0 Subclass": other})
    restored.load_state_dict(Attributes({"0 Subclass": callback}).state_dict())
    assert (other.last, other.last.maxlen, other.sums["train"]["loss"]) == (callback.last, 2, [1.0])
