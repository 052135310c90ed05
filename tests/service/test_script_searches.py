"""Test a search of a program with a training loop: paused trials resume with the bits of an undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.checkpoints.directory import Directory
from kernel_backend.definition.script.parts import PART
from tests.support.submitted import submit_program
from tests.support.world import World, until

pytestmark = pytest.mark.distributed

PATIENCE_S = 600.0  # five starts of a rank, one after the other

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
lr = 0.1
EPOCHS = 2
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
opt = torch.optim.Adam(model.parameters(), lr=lr)
for epoch in range(EPOCHS):
    for _ in range(5):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    score = lr + 1e-6 * model(torch.ones(1, 4)).square().item()  # the smallest rate, which comes first, is the best
    print(f"epoch {epoch} loss {loss.item()!r} score {score!r}", flush=True)
"""


def digest(world: World, number: int, trial: int) -> str:
    newest = Directory(world.home / "checkpoints" / str(number) / str(trial)).committed()[-1]
    (found,) = [part.digest for part in newest.parts if part.name == PART]
    return found


def log(world: World, number: int, trial: int, attempt: int) -> str:
    return (world.home / "attempts" / f"{number}.{trial}-{attempt}" / "rank-0.log").read_text()


def test_a_trial_that_was_paused_ends_with_the_bits_of_an_undisturbed_run(world: World, tmp_path: Path) -> None:
    search = ("--search=asha", "--trials=3", "--eta=2", "--parallel=1", "--metric=score:min", "lr=1e-3..1e-1:log")
    number = submit_program(world, tmp_path, PROGRAM, *search, "--", "python", "train.py")
    found = until(lambda: (o := world.overview(number)).ended and o, f"search {number} ends", PATIENCE_S)
    assert found.state == "completed"
    assert found.experiment.config.epochs == 2
    whole = [each for each in found.trials if each.state == "completed"]
    assert any(each.attempt > 1 for each in whole)
    for each in whole:
        alone = submit_program(world, tmp_path, PROGRAM, f"lr={each.params['lr']!r}", "--", "python", "train.py")
        assert world.ended(alone).state == "completed"
        assert log(world, number, each.index, each.attempt) == log(world, alone, 1, 1)
        assert digest(world, number, each.index) == digest(world, alone, 1)
