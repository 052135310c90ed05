"""Test that a restarted program finds the files that it found at its start, and changes none of today's."""

from __future__ import annotations

import pytest
from gang import STAND

pytestmark = pytest.mark.distributed

SETUP = f"""
import datetime, os, shutil, torch
{STAND}
from torch import nn
shutil.rmtree("out", ignore_errors=True)
os.makedirs("out")
number = len(os.listdir("runs"))
os.mkdir(f"runs/{{number}}")
log = open(f"runs/{{number}}/train.log", "w")
at = open(datetime.datetime.now().strftime("runs/0/%H%M%S%f"), "w")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    for i in range(3):
        stand()
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch == 0:
        torch.save(model.state_dict(), "out/best.pt")
    log.write(f"{{epoch}}\\n")
    at.write(f"{{epoch}}\\n")
log.close()
at.close()
print(sorted(os.listdir("out")), sorted(torch.load("out/best.pt")), open(log.name).read(), len(os.listdir("runs/0")))
"""


@pytest.mark.parametrize("slots", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_program_that_was_killed_twice_has_one_folder_with_all_lines_and_its_best_weights(trial, slots):
    killed = trial(source=SETUP, slots=slots, epochs=4, every="1steps")
    for name in ("out/old.txt", "runs/0/train.log"):
        (killed.folder / name).parent.mkdir(parents=True)
        (killed.folder / name).write_text("of an earlier run\n")
    killed.killed_at(5)
    second = killed.start(killed.pinned(), hold=8).reaches(7)
    second.wait(lambda: "8-2" in second.committed())
    second.kill(0)
    last = killed.run(resume_from=killed.pinned())
    assert set(last.codes) == {0}, last.logs()
    assert "['best.pt'] ['bias', 'weight'] 0\n1\n2\n3\n 2\n" in last.logs()
    (named,) = (each for each in (killed.folder / "runs" / "0").iterdir() if each.name != "train.log")
    assert (last.started.resumed_from, named.read_text()) == ("8-2", "0\n1\n2\n3\n")
    assert sorted(each.name for each in (killed.folder / "runs").iterdir()) == ["0", "1"]
