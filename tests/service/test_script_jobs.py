"""Test jobs of programs with training loops, submitted like users do: how they end, and how often they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ext.job.job import Job
from kernel_backend.client import Client
from kernel_backend.errors import DaylightError
from tests.support.submitted import daylight, submit_program
from tests.support.world import World

pytestmark = pytest.mark.distributed

ARGUED = """
import argparse
import torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=args.lr)
for epoch in range(args.epochs):
    for _ in range(4):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.6f}", flush=True)
"""


@pytest.mark.parametrize("options", [(), ("--form=command",)])
def test_a_program_that_refuses_its_command_line_is_not_tried_again(
    world: World, tmp_path: Path, options: tuple[str, ...]
) -> None:
    number = submit_program(world, tmp_path, ARGUED, *options, "--", "python", "train.py", "--lr=0.1", "--momentum=3")
    ended = world.ended(number)
    (trial,) = ended.trials
    assert (ended.state, trial.attempt) == ("failed", 1)
    assert trial.failure is not None
    assert trial.failure.type == "UsageError"
    assert trial.failure.message == "train.py: error: unrecognized arguments: --momentum=3"
    shown = daylight(world, "show", str(number)).stdout
    assert "train.py: error: unrecognized arguments: --momentum=3" in shown
    assert "not tried again: the program refuses its command line" in shown


def test_a_command_that_ends_twice_in_the_same_way_is_not_tried_a_third_time(world: World, tmp_path: Path) -> None:
    line = ("--", "bash", "-c", "echo reading; echo no such mesh >&2; exit 4")
    number = submit_program(world, tmp_path, "", *line)
    (trial,) = world.ended(number).trials
    assert (trial.state, trial.attempt) == ("failed", 2)
    assert trial.failure is not None
    assert trial.failure.message.endswith("ended with exit code 4; its last line: no such mesh")


KILLED = """
import os
import torch
from torch import nn
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    opt.step()
    if step == 5:
        os.kill(os.getpid(), 9)
"""


def test_a_training_loop_that_dies_at_the_same_step_is_restarted_max_restarts_times(
    world: World, tmp_path: Path
) -> None:
    limits = "--max-restarts=1", "--checkpoint-every=2steps"
    number = submit_program(world, tmp_path, KILLED, *limits, "--", "python", "train.py")
    ended = world.ended(number)
    (trial,) = ended.trials
    assert (trial.state, trial.attempt) == ("failed", 2)
    assert trial.failure is not None
    assert trial.failure.type == "SIGKILL"
    assert ended.attempts[1].resume_from is not None
    assert "not tried again: 2 attempts without progress (--max-restarts 1)" in " ".join(ended.warnings)


def test_scripts_are_compared_by_bits(world: World, tmp_path: Path) -> None:
    every = "--checkpoint-every=2steps"
    first = submit_program(world, tmp_path, ARGUED, every, "--keep=latest:9", "--", "python", "train.py", "--lr=0.1")
    assert world.ended(first).state == "completed"
    assert daylight(world, "rerun", str(first), "--wait").returncode == 0
    verified = daylight(world, "verify", str(first))
    assert (verified.returncode, "bit-identical" in verified.stdout) == (0, True), verified.stdout
    equal = daylight(world, "diff", str(first), str(first + 1), "--strict")
    assert (equal.returncode, "bit-identical: the checkpoints of step 8" in equal.stdout) == (0, True), equal.stdout
    other = submit_program(world, tmp_path, ARGUED, every, "--", "python", "train.py", "--lr=0.2")
    world.ended(other)
    differs = daylight(world, "diff", str(first), str(other), "--strict")
    assert differs.returncode == 1
    assert "results part at step 2: training loss" in differs.stdout
    assert "the first tensor that differs after step" in differs.stdout
    assert f"#{first} promises: " in differs.stdout
    job = Job(first, Client.connect(start=False, home=world.home))
    assert job.diff(first + 1, strict=True).results.identical
    with pytest.raises(DaylightError, match="results part at step 2: training loss"):
        job.diff(other, strict=True)
