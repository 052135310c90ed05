"""Test the digests of the weights at step 0: one for each tensor, and one for all."""

from __future__ import annotations

import torch
from torch import nn

from kernel_backend.runner.determinism.digests import tensor_digest, weights


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


def test_equal_weights_have_equal_digests_and_one_other_bit_is_seen_where_it_is():
    first, second = net(), net()
    assert weights(first, {}) == weights(second, {})
    with torch.no_grad():
        second[0].bias[1] += 1e-6
    before, after = weights(first, {}), weights(second, {})
    assert before.digest != after.digest
    assert {name for name in before.tensors if before.tensors[name] != after.tensors[name]} == {"0.bias"}


def test_buffers_and_modules_beside_the_model_are_among_them():
    found = weights(net(), {"loss.teacher": nn.Linear(2, 2)})
    assert {"1.running_mean", "loss.teacher.weight"} <= set(found.tensors)


def test_a_digest_knows_kind_and_shape_and_not_how_memory_lies():
    table = torch.arange(6.0).reshape(2, 3)
    assert tensor_digest(table.T) == tensor_digest(table.T.contiguous())
    others = {tensor_digest(each) for each in (table, table.flatten(), table.double(), table.T)}
    assert len(others) == 4


def test_lazy_parameters_are_not_known_yet():
    assert set(weights(nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1)), {}).tensors) == {"1.weight", "1.bias"}
