"""Test predictions: each row once, in order and with the bits of the model, whatever happens meanwhile."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
import pytest
import torch
from torch.utils.data import TensorDataset

from jupyter_ext.job.job import Job
from jupyter_ext.job.outcome import ExperimentFailed
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.client import Client
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.errors import InvalidRequest, NotFound
from tests.support.world import World, until
from tests.torture.predictions import outcome, submitted, trained

pytestmark = pytest.mark.distributed
SOURCE = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body, self.drop, self.head = nn.Linear(4, width), nn.Dropout(0.5), nn.Linear(width, 2)
    def forward(self, x):
        if (x > 90).any():
            raise ValueError("a pixel beyond all bounds")
        return self.head(self.drop(self.body(x).relu()))
def rows(count, seed):
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
def model(width=8): return Net(width)
def train_data(): return rows(64, 0)
def validation_data(): return rows(32, 1)
def test_data(count=300): return rows(count, 2)
def loss(output, target): return nn.functional.cross_entropy(output, target)
def metrics(output, target):
    right = (output.argmax(1) == target).float()
    return {"accuracy": right, "spread": output.softmax(1)[:, 1].std()}  # which no mean of batches gives
"""

JUDGE = """
import time
from pathlib import Path
import torch
def evaluate_data():
    rows = torch.arange(101)
    return torch.utils.data.TensorDataset(torch.zeros(101, 4), rows)
def evaluate(model, batch):
    x, row = batch
    while row[0] >= 60 and not Path("go").exists():
        Path("reached").touch()
        time.sleep(0.05)
    return {"row": row.float(), "half": len(x) / 2}
"""


@pytest.fixture(scope="module")
def job(world: World) -> Job:
    number = world.submit(SOURCE, contract=CONTRACT, slots=1, epochs=1).experiment.number
    assert world.ended(number).state == "completed"
    return Job(number, Client.connect(start=False, home=world.home))


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randn(300, 4, generator=torch.Generator().manual_seed(5))


def outputs(job: Job, x: torch.Tensor, batch: int = 256) -> Any:
    """Return what the loaded model computes, by batches of the same size."""
    model: Any = job.load()
    with torch.no_grad():
        return torch.cat([model(piece) for piece in x.split(batch)]).numpy()


def daylight(world: World, cwd: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kernel_backend.cli", *arguments],
        cwd=cwd,
        env=os.environ | {"DAYLIGHT_HOME": str(world.home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + (done.stderr if code else "")


def test_a_notebooks_rows_are_predicted_with_the_bits_of_the_loaded_model(job: Job, x: torch.Tensor) -> None:
    wanted = outputs(job, x)
    assert np.array_equal(job.predict(x), wanted)
    assert np.array_equal(job.predict(TensorDataset(x, torch.zeros(300)), slots=2), wanted)
    two, one = (each.experiment.number for each in job.client.experiments(limit=2))
    assert job.client.diff(one, two).results.identical


def test_files_of_each_kind_and_the_trainings_own_data(world: World, job: Job, x: torch.Tensor, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", x.numpy())
    table = pd.DataFrame(x.numpy(), columns=["a", "b", "c", "d"])
    table.to_csv(tmp_path / "x.csv", index=False)
    table.to_parquet(tmp_path / "x.parquet", row_group_size=70)
    wanted, number = outputs(job, x), str(job.number)
    for name in ("x.npy", "x.csv", "x.parquet"):
        said = daylight(world, tmp_path, "predict", number, "--data", name, "--to", f"{name}.npy")
        assert said.splitlines()[-1] == f"{name}.npy"
        assert np.array_equal(np.load(tmp_path / f"{name}.npy"), wanted), name
    daylight(world, tmp_path, "register", number, "--as", "net")
    said = daylight(world, tmp_path, "predict", "net@1", "--data", "test_data", "--wait", "--json", "--slots", "1..2")
    made = json.loads(said)["experiment"]["number"]
    assert daylight(world, tmp_path, "predictions", str(made), "--to", "own.parquet").strip() == "own.parquet"
    found = parquet.read_table(tmp_path / "own.parquet")
    newest = job.checkpoints()[-1].id
    assert found.schema.metadata == {
        b"daylight.model": f"{number}.1/{newest}".encode(),
        b"daylight.experiment": str(made).encode(),
    }
    assert found.column("row").to_pylist() == list(range(300))
    own = torch.randn(300, 4, generator=torch.Generator().manual_seed(2))
    assert np.array_equal(np.array(found.column("output").to_pylist(), dtype="float32"), outputs(job, own))
    assert "row 300 of 300" in daylight(world, tmp_path, "show", str(made))
    assert f"predictions {made} --to" in daylight(world, tmp_path, "show", str(made))
    no_model = f"#{made} has no model of its own"
    for verb in (
        ("evaluate", str(made), "--data", "test_data"),
        ("register", str(made), "--as", "other", "--latest"),
        ("export", str(made), "--model", "other"),
    ):
        assert no_model in daylight(world, tmp_path, *verb, code=2)
    again = json.loads(daylight(world, tmp_path, "rerun", str(made), "data=validation_data", "--no-wait", "--json"))
    assert world.ended(again["experiment"]["number"]).trials[0].total_steps == 32


def test_rows_that_raise_are_named_or_listed(job: Job, world: World, x: torch.Tensor, tmp_path: Path) -> None:
    spoilt = x.clone()
    spoilt[[7, 130]] = 99
    with pytest.raises(ExperimentFailed, match="a pixel beyond all bounds; row 7 of the data; on_bad=skip lists such"):
        job.predict(spoilt, batch_size=64)
    found = job.predict(spoilt, batch_size=64, on_bad="skip", slots=2, to=tmp_path / "out.parquet")
    assert [path.name for path in found] == ["out.parquet", "out.parquet.bad.csv"]
    table = parquet.read_table(found[0])
    kept = [row for row in range(300) if row not in (7, 130)]
    assert table.column("row").to_pylist() == kept
    alone = outputs(job, x[kept])
    assert np.allclose(np.array(table.column("output").to_pylist()), alone, atol=1e-6)
    rows = list(csv.reader(found[1].open()))
    assert rows == [["row", "error"], *([str(row), "ValueError: a pixel beyond all bounds"] for row in (7, 130))]
    number = job.client.experiments(limit=1)[0].experiment.number
    values = Job(number, job.client).predictions()
    assert values["row"].tolist() == kept
    with pytest.raises(InvalidRequest, match=r"a \.npy file has each row, and 2 are bad: name a \.parquet file"):
        Job(number, job.client).predictions(tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()
    shards = Job(number, job.client).predictions(tmp_path / "shards")
    assert len(list((tmp_path / "shards").glob("rows-*.safetensors"))) == 5
    assert shards[1].name == "shards.bad.csv"


def test_what_cannot_be_predicted_is_said_before_a_slot_is_taken(job: Job, world: World, tmp_path: Path) -> None:
    number = str(job.number)
    refused = {
        ("--data", "nowhere.csv"): "there is no such file or folder",
        (): "--data is missing",
        ("--data", "test_data", "--to", "out.csv"): "name a .parquet or .npy file, or a folder",
        ("--data", "test_data", "--batch-size", "none"): "none",
    }
    for arguments, why in refused.items():
        assert why in daylight(world, tmp_path, "predict", number, *arguments, code=2)
    (tmp_path / "own.py").write_text("def predict_data(): return []\ndef predict(model): return model\n")
    assert "own.py line 2) is called as predict(model, batch)" in daylight(
        world, tmp_path, "predict", number, "--with", "own.py", code=2
    )
    (tmp_path / "own.py").write_text("def predict_data(): return []\n")
    assert "write --from memes@production" in daylight(world, tmp_path, "submit", "own.py", code=2)
    assert "predictions train nothing" in daylight(
        world, tmp_path, "submit", "own.py", "--from", number, "--clip", "1", code=2
    )
    with pytest.raises(InvalidRequest, match=f"#{number} is no prediction: daylight predict {number}"):
        job.predictions()


def test_its_model_stays_until_it_has_ended_and_a_pause_repeats_no_row(own_world: World, tmp_path: Path) -> None:
    model = trained(own_world)
    number = submitted(own_world, model, tmp_path / "paused", "2", rows=400, pause=0.05)
    client = Client.connect(start=False, home=own_world.home)
    until(lambda: own_world.overview(number).trials[0].step >= 64, "two shards are done")
    client.pause(number)
    own_world.state(number, "paused")
    client.collect(number)
    copies = [
        each
        for each in CheckpointStorage(str(own_world.home / "checkpoints")).open(number, 1).committed()
        if each.origin
    ]
    assert [each.origin for each in copies] == [client.experiment(number).experiment.begins_from.partition(":")[0]]
    with pytest.raises(InvalidRequest, match=f"the predictions of #{number} are not complete: the first"):
        Job(number, client).predictions()
    client.delete_experiment(model)  # the prediction has its copy
    client.resume(number)
    assert own_world.ended(number).state == "completed"
    found = outcome(own_world, number, tmp_path / "paused", 400)
    assert found.again <= 2 * 32  # of the shards that the pause has cut off


def test_kills_and_other_numbers_of_slots_change_no_byte(own_world: World, tmp_path: Path) -> None:
    model = trained(own_world)
    quiet = submitted(own_world, model, tmp_path / "quiet", "1", rows=600, pause=0.0)
    assert own_world.ended(quiet).state == "completed"
    wanted = outcome(own_world, quiet, tmp_path / "quiet", 600)
    number = submitted(own_world, model, tmp_path / "killed", "1..2", rows=600, pause=0.05)
    for reached in (64, 256):
        until(lambda row=reached: own_world.overview(number).trials[0].step >= row, "shards are done")
        rank = own_world.ranks()[0]
        own_world.submit(epochs=1, slots=1)  # takes one of its slots
        rank.kill()
    assert own_world.ended(number).state == "completed"
    found = outcome(own_world, number, tmp_path / "killed", 600)
    assert found.joined == wanted.joined
    attempts = own_world.overview(number).attempts
    assert wanted.again == 0
    # An interruption repeats the shard that each slot has in work.
    assert found.again <= (len(attempts) - 1) * 2 * 32
    shard = own_world.home / "artifacts" / str(quiet) / "1" / "rows-000000000032-000000000064.safetensors"
    shard.write_bytes(b"x")
    with pytest.raises(NotFound, match="is not the one that was kept"):
        Job(quiet, Client.connect(start=False, home=own_world.home)).predictions()


def test_a_model_is_measured_as_its_training_has_validated_it(world: World, job: Job, tmp_path: Path) -> None:
    validated = world.overview(job.number).trials[0].metrics
    assert set(validated) == {"loss", "accuracy", "spread"}
    size = job.overview.experiment.config.batch_size
    assert job.evaluate("validation_data", batch_size=size) == validated
    for slots in (1, 2):
        found = job.evaluate("validation_data", batch_size=5, slots=slots)
        assert found == pytest.approx(validated, abs=1e-6)
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
    y = (x.sum(1) > 0).long()
    assert job.evaluate((x, y), batch_size=size) == validated
    frame = pd.DataFrame(x.numpy(), columns=["a", "b", "c", "d"]).assign(label=y.numpy())
    assert job.evaluate(frame, target="label", batch_size=size) == validated
    frame.to_parquet(tmp_path / "x.parquet")
    newest = job.checkpoints()[-1]
    begins = f"{job.number}.1@{newest.step}"
    other = world.submit(
        SOURCE, contract=CONTRACT, slots=1, epochs=1, weights_from=begins, amp="bf16"
    ).experiment.number
    assert world.ended(other).state == "completed"
    assert world.overview(other).experiment.begins_from == f"{job.number}.1/{newest.id}:weights"
    trained = Job(other, job.client)
    measured = trained.evaluate("validation_data", batch_size=size)  # with the precision of the training
    assert measured == world.overview(other).trials[0].metrics
    assert measured["loss"] != float(torch.nn.functional.cross_entropy(torch.from_numpy(trained.predict(x)), y))
    options = ("--data", "x.parquet", "--target", "label", "--batch-size", str(size), "--each-checkpoint")
    said = daylight(world, tmp_path, "evaluate", f"{job.number},{other}", *options)
    _, _, table = said.partition("model ")
    head, *rows = [line.split() for line in table.splitlines()]
    assert head == ["loss", "accuracy", "spread", "evaluation"]
    saved = [(each, own.step) for each in (job.number, other) for own in Job(each, job.client).checkpoints()]
    kept = [f"{each}.1@{step}" for each, step in saved if step]  # that of step 0 is the copy with which it began
    assert [row[0] for row in rows] == kept
    losses = {row[0]: row[1] for row in rows}
    for at, number in ((begins, job.number), (kept[-1], other)):
        assert losses[at] == f"{world.overview(number).trials[0].metrics['loss']:.4g}"
    made = int(rows[0][-1].removeprefix("#"))
    shown = daylight(world, tmp_path, "show", str(made))
    assert "row 32 of 32" in shown
    assert "best" not in shown
    assert "load()" not in shown
    with pytest.raises(InvalidRequest, match=f"#{made} is no prediction"):
        Job(made, job.client).predictions()
    why = "have the columns a, b, c, d, label, and nothing says which is the target: write --target COLUMN"
    assert why in daylight(world, tmp_path, "evaluate", str(job.number), "--data", "x.parquet", code=1)
    for arguments, refused in {
        (): "takes models: write daylight evaluate 12,14",
        ("999999",): "there is no experiment #999999",
        (f"{job.number}@7",): f"there is no checkpoint at step 7; there are those at {newest.step}",
        (str(made),): f"#{made} has no model",
    }.items():
        assert refused in daylight(world, tmp_path, "evaluate", *arguments, "--data", "x.parquet", code=2)


def test_a_kill_in_an_evaluation_counts_no_row_twice(own_world: World, tmp_path: Path) -> None:
    model = trained(own_world)
    (tmp_path / "judge.py").write_text(JUDGE)
    options = ("--with", "judge.py", "--slots", "2", "--batch-size", "4", "--no-wait", "--json")
    said = daylight(own_world, tmp_path, "evaluate", str(model), *options)
    number = json.loads(said)["evaluations"][0]["experiment"]["number"]
    until((tmp_path / "reached").exists, "some rows are measured")
    own_world.ranks()[0].kill()
    (tmp_path / "go").touch()
    assert own_world.ended(number).state == "completed"
    assert len(own_world.overview(number).attempts) == 2
    (report,) = [each for each in own_world.reports(number) if each.kind == "validation"]
    assert (report.step, report.metrics) == (101, {"row": 50.0, "half": (25 * 4 * 2 + 0.5) / 101})
