"""Test what a job stores for its notebook at the end of a program: what the submitted cell has set and changed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernel_backend.model.artifacts import INDEX, RANDOM, VALUES, CellValues
from kernel_backend.snapshots.object_graph import JOB, unpickled
from tests.support.script_attempts import Job

ABOVE = """
import random
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 1)
random.seed(0)
torch.manual_seed(0)
data = torch.randn(12, 2)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
settings = {"name": "first"}
seen = []
"""
CELL = """
def note(step):
    global last
    last = step
    seen.append(step)
losses, absent = [], (each for each in "ab")
for step in range(6):
    optimizer.zero_grad()
    loss = model.inner(data[step : step + 4]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    note(step)
w = model.inner.weight
"""
SET = {"absent", "last", "loss", "losses", "step", "w"}
CHANGED = {"model", "optimizer", "seen"}


class Net(nn.Module):
    """The notebook's class of this name."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = Job(
        tmp_path_factory.mktemp("job"), ABOVE + CELL, cell=ABOVE.count("\n") + 1, options={"values": "rng", "epochs": 6}
    )
    assert job.run(killed_at=3).code == -9
    assert not stored(job, INDEX).exists()
    ended = job.run()
    assert ended.code == 0, ended.log
    return job


def stored(job: Job, name: str) -> Path:
    return job.folder / "home" / "artifacts" / "1" / "1" / name


def index_of(job: Job) -> CellValues:
    return CellValues.model_validate_json(stored(job, INDEX).read_text())


@pytest.fixture(scope="module")
def values(job: Job) -> dict[str, Any]:
    with stored(job, VALUES).open("rb") as file:
        found: dict[str, Any] = unpickled(file, {"Net": Net}, JOB)
    return found


def test_a_killed_program_stores_what_the_cell_sets_and_what_it_changes_of_earlier_cells(
    job: Job, values: dict[str, Any]
) -> None:
    index = index_of(job)
    assert set(index.names) == SET - {"absent"} | CHANGED
    assert index.missing.keys() == {"absent"}
    assert set(index.unchanged) == {"data", "settings"}
    assert (len(values["losses"]), values["seen"], values["last"], values["step"]) == (6, list(range(6)), 5, 5)
    assert index.values["last"] == "5"


def test_the_values_are_those_of_a_program_that_nothing_has_disturbed(values: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"__name__": "__main__"}
    state = random.getstate()
    exec(ABOVE + CELL, plain)
    drawn = torch.rand(1), random.random()
    assert values["losses"] == plain["losses"]
    assert torch.equal(values["w"], plain["w"])
    assert values["model"].inner.weight is values["w"] is values["optimizer"].param_groups[0]["params"][0]
    assert isinstance(values["model"], Net)
    torch.set_rng_state(values[RANDOM]["torch"])
    random.setstate(values[RANDOM]["python"])
    assert (torch.rand(1), random.random()) == drawn
    random.setstate(state)


@pytest.mark.parametrize("options", [{"values": "off"}, {}], ids=["switched off", "a file"])
def test_nothing_is_stored_where_no_notebook_wants_it(tmp_path: Path, options: dict[str, Any]) -> None:
    cell = ABOVE.count("\n") + 1 if options else 0
    job = Job(tmp_path / "job", ABOVE + CELL, cell=cell, options=options)
    assert job.run().code == 0
    assert not stored(job, VALUES).exists()


def test_a_value_that_cannot_be_written_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kernel_backend.runner.cell_values.write", full)
    ended = Job(tmp_path / "job", ABOVE + CELL, cell=ABOVE.count("\n") + 1).run()
    assert ended.code == 0
    assert any("values were not stored for the notebook: OSError: [Errno 28] No space" in each for each in ended.notes)
