"""Test that parameters and buffers of every dtype that torch trains are trained on several slots, by each backend."""

from __future__ import annotations

import pytest
import torch
from gang import Trial

pytestmark = pytest.mark.distributed

# A Fourier layer, of complex numbers, beside real ones of two precisions and a buffer of truth values.
NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.filter = nn.Parameter(torch.randn(5, dtype=torch.complex64, generator=generator))
        self.shift = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.scale = nn.Parameter(torch.ones((), dtype=torch.bfloat16))
        self.register_buffer("mask", torch.arange(8) % 2 == 0)
    def forward(self, x):
        found = torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=8)
        return (found * self.mask).sum(1, keepdim=True) * self.scale + self.shift.float()
def samples():
    x = torch.randn(14, 8, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
"""
FUNCTIONS = (
    NET
    + """
def train_data(): return samples()
def model(): return Net()
def optimizer(params): return torch.optim.SGD(params, lr=0.01)
def loss(output, target): return (output - target).square().mean()
"""
)
LOOP = (
    NET
    + """
def train(run):
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    run.restore(model=net, optimizer=opt)
    for x, y in run.loader(samples()):
        loss = (net(x) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        run.report(loss=loss.item())
"""
)


@pytest.mark.parametrize("source", [FUNCTIONS, LOOP], ids=["functions", "loop"])
def test_complex_parameters_train_on_horovod_as_on_one_slot(tmp_path, source):
    one, two = (
        Trial(tmp_path / str(slots), source=source, slots=slots, backend="horovod", batch_size=5) for slots in (1, 2)
    )
    for trial in (one, two):
        ran = trial.run()
        assert ran.codes == [0] * trial.slots, ran.logs()
    assert one.model()["filter"].is_complex()
    for name, tensor in one.model().items():
        torch.testing.assert_close(two.model()[name], tensor, rtol=1e-4, atol=1e-5)
