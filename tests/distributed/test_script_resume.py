"""Programs with training loops of their own, taken as they stand: the bits of plain Python, steps and epochs."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.distributed

NESTED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(70, 16)
data = TensorDataset(x, (x[:, :4].sum(1) > 0).long())
model = nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 2))
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(2):
    total = 0.0
    for i, (a, b) in enumerate(DataLoader(data, batch_size=12, shuffle=True)):
        loss = nn.functional.cross_entropy(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / (i + 1)!r}")
if __name__ == "__main__":
    print("weights", sum(each.double().sum().item() for each in model.parameters()))
"""


def printed(folder, source):
    """What `python train.py` prints, on one thread."""
    (folder / "train.py").write_text(f"import torch; torch.set_num_threads(1)\n{source}")
    done = subprocess.run([sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_one_slot_gives_the_bits_of_plain_python(trial, tmp_path):
    one = trial(source=NESTED, slots=1)
    ran = one.run()
    assert ran.codes == [0], ran.logs()
    assert ran.logs() == f"rank-0.log\n{printed(tmp_path, NESTED)}"
    assert sorted(ran.reports("training")) == list(range(1, 13))
    assert (one.newest().step, one.newest().epoch) == (12, 2.0)
