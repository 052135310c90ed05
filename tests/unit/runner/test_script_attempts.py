"""Test attempts of a program with a training loop: where a restart begins, and that what watches costs only itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.script_attempts import Job
from tests.support.script_runs import run

# A thread's place in its work is saved nowhere: a restart from a checkpoint would train on its batches twice.
QUEUE = """
import queue
import threading
import torch
from torch import nn
batches = queue.Queue()
def fill():
    for number in range(12):
        batches.put(number / 12)
    batches.put(None)
threading.Thread(target=fill, daemon=True).start()
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 0
while (batch := batches.get()) is not None:
    loss = (model(torch.randn(8, 4)) - batch).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    steps += 1
print("end", steps, loss.item())
"""


def plain(folder: Path, source: str) -> str:
    """Return what plain Python prints for a program."""
    (folder / "plain").mkdir()
    (folder / "plain" / "train.py").write_text(source)
    return run(folder / "plain" / "train.py", rewritten=False).printed


@pytest.mark.parametrize("reproducible", ["host", "off"])
def test_a_program_presumed_from_the_start_begins_anew_after_a_kill(tmp_path: Path, reproducible: str):
    job = Job(tmp_path / "job", QUEUE, options={"reproducible": reproducible})
    first = job.run(killed_at=5)
    assert first.code == -9, first.log
    told = {
        "host": "presumed from the start, with the same bits: ",
        "off": "none: --reproducible off; a kill costs the whole run: ",
    }
    assert first.started.guarantee == f"{told[reproducible]}Thread(...) is a thread next to the loop, line 11"
    second = job.run()
    assert (second.code, second.started.resumed_from) == (0, None), second.log
    assert second.log == plain(tmp_path, QUEUE)
