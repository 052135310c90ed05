"""Tensors and states go into parts and come back to the last bit."""

from __future__ import annotations

import json
import math

import pytest
import torch

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.checkpoints.retention import expendable
from kernel_backend.checkpoints.writer import decode, encode, flatten, unflatten
from kernel_backend.errors import CheckpointDamaged, DaylightError
from kernel_backend.runner.checkpointing import load_optimizer


def there_and_back(tree):
    written, tensors = flatten(tree)
    return unflatten(json.loads(json.dumps(written)), decode(encode(tensors)))


def test_a_nested_state_comes_back_with_its_types():
    state = {
        "state": {0: {"step": torch.tensor(3.0), "history": [torch.ones(2), None]}},
        "param_groups": [{"betas": (0.9, 0.999), "params": [0, 1], "foreach": None, "lr": 0.1, "name": "all"}],
        "odd": {"$tensor": 1, "inf": math.inf, (1, 2): True},
    }
    back = there_and_back(state)
    assert torch.equal(back["state"][0]["step"], torch.tensor(3.0))
    assert torch.equal(back["state"][0]["history"][0], torch.ones(2))
    assert back["state"][0]["history"][1] is None
    assert back["param_groups"] == state["param_groups"]
    assert type(back["param_groups"][0]["betas"]) is tuple
    assert back["odd"] == state["odd"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool, torch.uint8])
def test_every_dtype_comes_back(dtype):
    tensor = (torch.randn(4, 3) * 3).to(dtype)
    back = decode(encode({"t": tensor, "scalar": tensor[0, 0], "empty": tensor[:0]}))
    assert back["t"].dtype == dtype
    assert torch.equal(back["t"], tensor)
    assert back["scalar"].shape == ()
    assert back["empty"].shape == (0, 3)


def test_tied_and_strided_tensors_are_written_each_for_itself():
    weight = torch.randn(6, 4)
    back = decode(encode({"one": weight, "tied": weight, "turned": weight.T, "half": weight[:3]}))
    assert torch.equal(back["tied"], weight)
    assert torch.equal(back["turned"], weight.T)
    assert torch.equal(back["half"], weight[:3])


def test_what_no_checkpoint_can_hold_is_named_with_its_place():
    with pytest.raises(DaylightError, match=r"state\.hook is a function"):
        flatten({"state": {"hook": lambda: None}})


def test_bytes_that_are_no_part_are_damage():
    with pytest.raises(CheckpointDamaged):
        decode(b"not safetensors at all")


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "RMSprop", "Adagrad", "NAdam"])
def test_an_optimizer_goes_on_as_if_nothing_had_happened(kind):
    def trained(steps, optimizer, parameter):
        for step in range(steps):
            parameter.grad = torch.sin(parameter.detach() * (step + 1))
            optimizer.step()

    def made():
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, 7))
        return parameter, getattr(torch.optim, kind)([parameter], lr=0.05)

    one, optimizer = made()
    trained(3, optimizer, one)
    two, restored = made()
    load_optimizer(restored, there_and_back(optimizer.state_dict()))
    two.data.copy_(one.data)
    trained(3, optimizer, one)
    trained(3, restored, two)
    assert torch.equal(one, two)


def test_float32_states_of_bfloat16_parameters_stay_float32():
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    optimizer.state[parameter]["momentum_buffer"] = torch.full((3,), 1 / 3)
    state = there_and_back(optimizer.state_dict())
    load_optimizer(optimizer, state)
    assert torch.equal(optimizer.state[parameter]["momentum_buffer"], torch.full((3,), 1 / 3))


def manifest(step, attempt=1):
    return Manifest(
        experiment=1, trial=1, attempt=attempt, step=step, epoch=0.0, at=0.0, world=1, seed=0, params={}, parts=()
    )


def test_all_but_the_newest_three_may_go():
    some = [manifest(step) for step in (40, 10, 30, 20)]
    assert [each.step for each in expendable(some)] == [10]
    assert expendable(some[:2]) == []


def test_the_two_newest_always_stay():
    some = [manifest(step) for step in (10, 20, 30)]
    assert [each.step for each in expendable(some, keep=0)] == [10]
