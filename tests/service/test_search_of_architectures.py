"""Test that blocks and conditions reach the functions of real trials, as dictionaries or as defaults."""

from __future__ import annotations

import pytest

from tests.support.world import World

pytestmark = pytest.mark.distributed

DEFINITION = """
import torch
from torch import nn

def train_data():
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
def validation_data(): return train_data()
def model(blocks):
    layers, inputs = [], 4
    for block in blocks:
        layers += [nn.Linear(inputs, block["width"]), nn.GELU(block["how"]) if block["act"] == "gelu" else nn.ReLU()]
        inputs = block["width"]
    return nn.Sequential(*layers, nn.Linear(inputs, 1))
def optimizer(params, opt="sgd", momentum=0.125):
    return torch.optim.SGD(params, 0.01, momentum) if opt == "sgd" else torch.optim.Adam(params, 0.01)
def loss(output, target): return nn.functional.mse_loss(output, target)
def metrics(output, target, blocks, momentum):
    seen = sum(block["width"] for block in blocks), sum("how" in block for block in blocks), momentum
    return {name: torch.full((len(target),), float(value)) for name, value in zip(("width", "hows", "momentum"), seen)}
"""
LINE = (
    "blocks=1..3 block.width=2..16:log2@each block.act=relu,gelu@each block.how=tanh,'none'@each@act=gelu "
    "opt=sgd,adam momentum=0.25..0.75@opt=sgd"
)


def test_each_trial_is_built_of_its_own_blocks(world: World) -> None:
    search = {"method": "sobol", "trials": 4}
    overview = world.ended(world.submit(DEFINITION, space=LINE, search=search, slots=1, epochs=1).experiment.number)
    assert [trial.state for trial in overview.trials] == ["completed"] * 4
    for trial in overview.trials:
        blocks = trial.params["blocks"]
        assert trial.metrics["width"] == sum(block["width"] for block in blocks)
        assert trial.metrics["hows"] == sum(block["act"] == "gelu" for block in blocks)
        assert trial.metrics["momentum"] == pytest.approx(trial.params["momentum"])
        assert (trial.params["opt"] == "adam") == (trial.params["momentum"] == 0.125)
    # Of Sobol's first four points there is one in each quarter of each range.
    assert {len(trial.params["blocks"]) for trial in overview.trials} >= {1, 3}
    assert {trial.params["opt"] for trial in overview.trials} == {"sgd", "adam"}
