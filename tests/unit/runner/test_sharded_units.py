"""Test that the units of a sharded model are its blocks, whatever their number."""

import pytest
import torch
from torch import nn

from kernel_backend.runner.sharded.units import units


def blocks(count: int, width: int) -> nn.Module:
    """Return a model of equal blocks, without memory for its weights."""
    with torch.device("meta"):
        model = nn.Module()
        model.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width)) for _ in range(count))
    return model


@pytest.mark.parametrize("count", [2, 12, 31])
def test_every_block_of_a_small_model_is_a_unit(count):
    model = blocks(count, width=32)
    found = units(model)
    held = {id(each) for unit in found for each in unit.parameters()}
    assert len(found) == count
    assert held >= {id(block[0].weight) for block in model.blocks}


def test_a_block_of_megabytes_is_a_unit_in_a_model_of_many():
    model = blocks(120, width=1100)  # 4.8 MB each, less than 1/32 of the whole
    assert len(units(model)) == 120


def test_many_small_blocks_make_no_units_of_their_own():
    assert units(blocks(120, width=32)) == []
