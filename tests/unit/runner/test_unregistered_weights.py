"""Test which weights that an optimizer trains are refused, as the model does not register them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.definition.unregistered_weights import refuse_unregistered


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 2)
        self.members = [nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)]
        self.body.scales = {"a": [torch.ones(1, requires_grad=True)]}  # type: ignore[assignment]
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.buffer = torch.ones(3)


def test_weights_that_a_model_does_not_register_are_refused_by_the_names_that_hold_them() -> None:
    net = Net()
    body = torch.optim.SGD(net.parameters())
    refuse_unregistered(net, [body])
    members = torch.optim.Adam([each.weight for each in net.members])
    scales = torch.optim.Adam(net.body.scales["a"])  # type: ignore[index]
    with pytest.raises(InvalidDefinition) as refused:
        refuse_unregistered(net, [body, members, scales])
    assert refused.value.message.startswith(
        "the optimizer trains 3 tensors that Net does not register (self.members, self.body.scales): checkpoints, "
    )
    with pytest.raises(InvalidDefinition, match="trains 1 tensor that Net does not register: checkpoints"):
        refuse_unregistered(net, [torch.optim.SGD([torch.ones(1, requires_grad=True)])])
