"""Test that what watches a program never ends its training: objects that cannot be read, saved or compared."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.distributed

# A plain Python process trains this program to its end.
PROGRAM = """
import torch
from torch import nn

class Secretive:
    __slots__ = ("inner",)
    def __getattribute__(self, name):
        raise RuntimeError(f"{name} is not to be read")
    def __reduce_ex__(self, protocol):
        raise RuntimeError("not to be saved")

torch.manual_seed(0)
secret = Secretive()
unused = nn.Linear(3, 3, device="meta")
net = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))
net.register_buffer("sparse", torch.eye(3).to_sparse())
net.register_buffer("conjugated", torch.ones(2, dtype=torch.cfloat).conj())
compiled = torch.compile(net, backend="eager")
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for _ in range(4):
        loss = compiled(torch.randn(4, 8)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("loss", loss.item())
"""


def test_objects_that_cannot_be_read_do_not_end_a_training(trial):
    attempt = trial(source=PROGRAM, slots=1, epochs=3, every="2steps", options={"rehearse": True}).run()
    assert attempt.codes == [0], attempt.logs()
    assert max(attempt.reports("training")) == 12
