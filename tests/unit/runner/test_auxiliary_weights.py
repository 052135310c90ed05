"""Test that what users' code trains beside the model of a framework is in its checkpoints."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernel_backend.runner.external_loop.auxiliary_weights import AuxiliaryWeights, UnheldOptimizers, auxiliary_of
from kernel_backend.runner.external_loop.parts import part_of

PROGRAM = """
import torch
from torch import nn
model, head, teacher = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scale = nn.Parameter(torch.zeros(()))
adam = torch.optim.Adam([*head.parameters(), scale], lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(adam, 2)
mean = torch.zeros(2)
data = torch.ones(1000, 2)
class Averages:
    def __init__(self):
        self.shadows = [each.detach().clone() for each in model.parameters()]
    def step(self, x):
        with torch.no_grad():
            for shadow, each in zip(self.shadows, model.parameters()):
                shadow.lerp_(each, 0.1)
        loss = teacher(x).sum() * scale + head(x * data[0]).sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
        schedule.step()
        mean.add_(x.mean(0))
averages = Averages()
"""


def made() -> dict[str, Any]:
    torch.manual_seed(1)
    linecache.cache["<beside>"] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), "<beside>")
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(compile(PROGRAM, "<beside>", "exec"), namespace)
    return namespace


def held(program: dict[str, Any], unseen: bool = False) -> dict[str, Any]:
    """Return the parts of what the program trains beside `model`, by name."""
    called = {"model": program["model"], "averages": program["averages"]}
    found = auxiliary_of(called, [program["model"], program["optimizer"]])
    return {
        "beside": AuxiliaryWeights(found.tensors, unseen),
        **{name: part_of(name, each) for name, each in found.steppers.items()},
    }


def weights(program: dict[str, Any]) -> list[Tensor]:
    own = [*program["head"].parameters(), program["scale"], program["mean"], *program["averages"].shadows]
    return [each.detach().clone() for each in own]


def test_a_second_network_bare_weights_and_averages_go_on_after_a_restart() -> None:
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(2))
    whole, killed, resumed = made(), made(), made()
    for _ in range(6):
        whole["averages"].step(x)
    parts = held(killed)
    for _ in range(3):
        killed["averages"].step(x)
    again = held(resumed)
    assert sorted(again) == sorted(parts) == ["adam", "beside", "schedule"]
    for name, part in parts.items():
        again[name].load_state_dict(part.state_dict())
    for _ in range(3):
        resumed["averages"].step(x)
    for one, other in zip(weights(whole), weights(resumed), strict=True):
        assert torch.equal(one, other)


def test_weights_are_named_as_the_program_names_them_and_constant_ones_are_left_out() -> None:
    program = made()
    parts = held(program)
    assert parts["beside"].state_dict() == {}
    program["averages"].step(torch.ones(3, 2))
    names = ["averages/shadows/0", "averages/shadows/1", "head/bias", "head/weight", "mean", "scale"]
    assert sorted(parts["beside"].state_dict()) == names


def test_weights_that_are_written_by_their_data_are_held() -> None:
    program = made()
    parts = held(program, unseen=True)
    program["teacher"].weight.data.zero_()
    assert not parts["beside"].state_dict()["teacher/weight"].any()
    assert "data" not in parts["beside"].state_dict()


class Rank:
    """Rank that records the limits of its guarantee."""

    def __init__(self) -> None:
        self.limits: list[str] = []

    def limit_guarantee(self, text: str) -> None:
        self.limits.append(text)


@pytest.mark.parametrize(("steps", "told"), [((4, 4), False), ((4, 5), True)])
def test_an_optimizer_that_is_made_in_the_training_and_stays_is_told_of(steps: tuple[int, int], told: bool) -> None:
    rank, now = Rank(), [0]
    held, late = (torch.optim.SGD([nn.Parameter(torch.zeros(1))]) for _ in range(2))
    check = UnheldOptimizers(rank, [held], lambda: now[0])  # type: ignore[arg-type]
    try:
        for now[0] in steps:
            held.step()
            late.step()
    finally:
        check.close()
    assert [text.startswith("not reproducible: a further SGD trains weights") for text in rank.limits] == [True] * told
