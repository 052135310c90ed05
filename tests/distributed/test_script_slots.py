"""Test programs with training loops on two slots: the numbers, log and files of a run on one slot."""

from __future__ import annotations

import json

import pytest
import torch
from gang import LOADER_LOOP, Trial

pytestmark = pytest.mark.distributed

WRITING = """
import csv
import os
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(70, 16)
y = (x[:, :4].sum(1) > 0).long()
model = nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
os.makedirs("runs/new")
log = csv.writer(open("runs/log.csv", "w"))
kept = []
for epoch in range(3):
    model.train()
    for rows in torch.randperm(70).split(12):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.3f}")
    log.writerow([epoch, round(accuracy, 2)])
    torch.save(model.state_dict(), f"runs/new/{epoch}.pt")
    torch.save(model.state_dict(), "runs/last.pt")
    kept.append(f"runs/new/{epoch}.pt")
    if len(kept) > 2:
        os.remove(kept.pop(0))
assert sorted(kept) == kept and all(os.path.exists(each) for each in kept)
model.load_state_dict(torch.load(kept[-1]))
"""
WIRED = """
import json
import os
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(64, 4)
net = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
mine = x[dist.get_rank() :: dist.get_world_size()]
for step in range(4):
    optimizer.zero_grad()
    (net(mine) - mine.sum(1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
weights = net.module.weight.tolist()
with open(f"weights-{dist.get_rank()}.json", "w") as file:
    json.dump(weights, file)
dist.destroy_process_group()
"""


def test_two_slots_write_the_log_and_the_files_of_one(trial, tmp_path_factory):
    one = trial(source=WRITING, slots=1, epochs=3)
    single = one.run()
    assert single.codes == [0], single.logs()
    kept = {each.relative_to(one.folder): each.read_bytes() for each in (one.folder / "runs").rglob("*.*")}
    two = type(one)(tmp_path_factory.mktemp("two") / "trial", source=WRITING, slots=2, epochs=3, every="1epoch")
    ran = two.run()
    assert ran.codes == [0, 0], ran.logs()
    found = {each.relative_to(two.folder): each for each in (two.folder / "runs").rglob("*.*")}
    assert found.keys() == kept.keys()
    assert not any("ranks at once" in each for each in ran.notes())
    assert (two.folder / "runs/log.csv").read_bytes() == (one.folder / "runs/log.csv").read_bytes()
    weights, expected = (torch.load(each.folder / "runs/new/2.pt") for each in (two, one))
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-5)
    logs = [attempt.folder.rank_log(0).read_text().splitlines() for attempt in (single, ran)]
    assert logs[0] == logs[1]


def test_a_program_that_wires_its_ranks_is_taken_as_it_stands(trial):
    ran = trial(source=WIRED).run()
    assert ran.codes == [0, 0], ran.logs()
    first, second = (
        json.loads((ran.folder.path.parent.parent / f"weights-{rank}.json").read_text()) for rank in (0, 1)
    )
    assert first == second
    assert not any("slots bring" in each for each in ran.notes())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Provide an uninterrupted training on two slots."""
    made = Trial(tmp_path_factory.mktemp("whole") / "trial", source=LOADER_LOOP)
    made.attempt = made.run()
    assert made.attempt.codes == [0, 0], made.attempt.logs()
    return made


@pytest.mark.parametrize(("step", "rank"), [(3, 0), (8, 1)])
def test_two_slots_killed_at_a_step_go_on_to_the_bits_of_the_undisturbed_two(trial, whole, step, rank):
    killed = trial(source=LOADER_LOOP, every="1steps")
    first = killed.killed_at(step, rank)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0, 0], second.logs()
    assert second.started.resumed_from == f"{step}-1"
    assert second.folder.rank_log(0).read_text() == whole.attempt.folder.rank_log(0).read_text()
    assert first.reports("training") | second.reports("training") == whole.attempt.reports("training")
    assert killed.parts()["modules"] == whole.parts()["modules"]
