"""Test that gangs train parameters with unusual memory layouts, or of 16 bits, like a single process does."""

from __future__ import annotations

import pytest
import torch
from gang import Trial

pytestmark = pytest.mark.distributed

# A fused optimizer walks through a weight and its gradient in memory, whatever their strides say.
CHANNELS_LAST = """
import torch
from torch import nn

def train_data():
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(3, 6, 6, generator=generator), index % 4) for index in range(32)]
def model():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return net.to(memory_format=torch.channels_last)
def optimizer(params): return torch.optim.AdamW(params, lr=1e-2, fused=True)
def loss(output, target): return nn.functional.cross_entropy(output, target)
"""

BFLOAT16 = """
import torch
from torch import nn

def train_data():
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(5, generator=generator).bfloat16(), index % 3) for index in range(22)]
def model(): return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3)).bfloat16()
def optimizer(params): return torch.optim.AdamW(params, lr=1e-2)
def loss(output, target): return nn.functional.cross_entropy(output.float(), target)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Provide a function `trained(source, slots, backend)` that returns the trial of a finished training."""

    def train(source, slots, backend="torch", logical=None):
        folder = tmp_path_factory.mktemp("layouts") / "trial"
        options = {"logical_workers": logical}
        trial = Trial(folder, source=source, slots=slots, backend=backend, batch_size=8, options=options)
        ran = trial.run()
        assert set(ran.codes) == {0}, ran.logs()
        return trial

    return train


def test_a_channels_last_model_with_a_fused_optimizer_is_trained_as_by_one_process(trained):
    alone, ring, tree = (trained(CHANNELS_LAST, *how) for how in ((1,), (2,), (2, "horovod", 4)))
    for name, expected in alone.model().items():
        for gang in (ring, tree):
            torch.testing.assert_close(gang.model()[name], expected, rtol=1e-3, atol=1e-4)


def test_bfloat16_parameters_have_the_same_bits_over_both_backends(trained):
    torch_, horovod = trained(BFLOAT16, 2, "torch"), trained(BFLOAT16, 2, "horovod")
    assert {each.dtype for each in torch_.model().values()} == {torch.bfloat16}
    assert horovod.parts() == torch_.parts()


def test_bfloat16_parameters_have_the_same_bits_at_any_number_of_slots(trained):
    alone, gang = trained(BFLOAT16, 1, logical=4), trained(BFLOAT16, 2, "horovod", 4)
    assert gang.parts() == alone.parts()
