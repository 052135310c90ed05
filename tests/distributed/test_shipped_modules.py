"""Test that a gang and its loader workers import modules from the snapshot."""

from __future__ import annotations

import pytest

from kernel_backend.model.snapshot import Project

pytestmark = pytest.mark.distributed

SETS = b"""
import torch

class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        from sets.words import target  # in the loader worker only
        return torch.full((3,), float(index)), torch.tensor([target()])
"""
DEFINITION = """
import sys
sys.path.insert(0, "../live")
from sets.noisy import Noisy
from torch import nn
import beside
def train_data(): return Noisy()
def model(): return nn.Linear(3, 1)
def loss(output, target): return (output - target).square().mean()
def metrics(output, target): return {"target": target.flatten()}
def validation_data(): return Noisy()
"""


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_loader_workers_have_the_shipped_package_and_not_the_live_one(trial, tmp_path, loader_workers):
    live = tmp_path / "live" / "sets"
    live.mkdir(parents=True)
    (live / "__init__.py").write_text("raise RuntimeError('this is the live one')")
    (tmp_path / "trial").mkdir(exist_ok=True)
    (tmp_path / "trial" / "beside.py").write_text("")
    shipped = {"__init__.py": b"", "noisy.py": SETS, "words.py": b"def target(): return 7.0"}
    made = trial(
        source=DEFINITION,
        options={"loader_workers": loader_workers},
        files={f"project/src/sets/{name}": data for name, data in shipped.items()},
        described={"project": Project(root=str(tmp_path), cwd="trial", paths=("src",))},
    )
    attempt = made.run()
    assert set(attempt.codes) == {0}, attempt.logs()
    assert {each["target"] for each in attempt.reports("validation").values()} == {7.0}
    (note,) = [text for text in attempt.notes() if "project folder" in text]
    assert "imported from the project folder, though not in the snapshot: beside (beside.py)" in note
    assert note.endswith("--include beside.py")
