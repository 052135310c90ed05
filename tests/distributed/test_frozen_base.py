"""Test that checkpoints share one copy of a frozen base, and that a killed training resumes with the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gang import STAND, Trial

from kernel_backend.checkpoints.copy import copy_checkpoint
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.model.experiment import Keep

pytestmark = pytest.mark.distributed

ADAPTED = f"""
import time
import torch
from torch import nn
{STAND}
class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(16, 400), nn.BatchNorm1d(400), nn.ReLU(), nn.Linear(400, 400))
        self.base.requires_grad_(False)
        self.down, self.up = nn.Linear(400, 2, bias=False), nn.Linear(2, 2)
    def forward(self, x): return self.up(nn.functional.dropout(self.down(self.base(x)), 0.1, self.training))
def data():
    x = torch.randn(72, 16, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.TensorDataset(x, (x[:, :4].sum(1) > 0).long())
def train_data(): return data()
def validation_data(): return data()
def model(): return Adapted()
def optimizer(model): return torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=1e-2)
def loss(output, target):
    stand()
    return nn.functional.cross_entropy(output, target)
"""


def adapted(folder: Path, slots: int) -> Trial:
    return Trial(
        folder,
        ADAPTED,
        slots=slots,
        epochs=4,
        every="2steps",
        options={"ema": 0.9, "keep": Keep(latest=20)},
        checkpoints=folder / "checkpoints" / "1" / "1",
    )


@pytest.mark.parametrize("slots", [1, 2])
def test_a_killed_training_shares_its_base_and_ends_with_the_same_bits(tmp_path: Path, slots: int) -> None:
    whole, killed = adapted(tmp_path / "whole", slots), adapted(tmp_path / "killed", slots)
    assert whole.run().codes == [0] * slots
    attempt = killed.start(hold=9)
    attempt.reaches(8).kill(slots - 1)
    ran = killed.run(resume_from=killed.pinned())
    assert ran.codes == [0] * slots, ran.logs()
    assert killed.parts() == whole.parts()
    assert {"model", "model.frozen", "ema", "ema.frozen"} <= set(killed.parts())
    files = [*Path(killed.home.where).glob("*/*.frozen.safetensors")]
    assert len(files) >= 6
    assert len({each.stat().st_ino for each in files}) < len(files) / 2
    sizes = {part.name: part.size for part in killed.newest().parts}
    assert sizes.pop("model.frozen") == sizes.pop("ema.frozen") > 10 * sum(sizes.values())

    storage = CheckpointStorage(str(tmp_path / "killed" / "checkpoints"))
    child = Trial(tmp_path / "child", ADAPTED, slots=1, epochs=1, checkpoints=Path(storage.where(1, 2)))
    copy_checkpoint(storage, f"1.1/{killed.newest().id}:weights", child.home, 1, 2)
    assert child.run(resume_from="0-0").codes == [0]
    for name, value in killed.model().items():
        assert name.partition(".")[0] in ("down", "up", "base")
        if "running" not in name and "num" not in name and name.startswith("base"):
            assert torch.equal(child.model()[name], value), name
