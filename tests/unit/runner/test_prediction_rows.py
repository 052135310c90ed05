"""Test how predictions read rows and turn outputs into columns and shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from kernel_backend.commands.predictions.read import parse_piece
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.predictions import BadRow, Shard, ShardAbout, missing_rows, parse_shard, shard_rows, shards_of
from kernel_backend.runner.forms.prediction.outputs import columns_of, joined, write_shard
from kernel_backend.runner.forms.prediction.rows import open_rows
from kernel_backend.runner.forms.prediction.training import default_prediction

X = torch.arange(20.0).reshape(10, 2)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield X[0]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    table = pd.DataFrame(X.numpy(), columns=["a", "b"])
    table.to_csv(tmp_path / "x.csv", index=False)
    table.to_parquet(tmp_path / "x.parquet", row_group_size=3)
    np.save(tmp_path / "x.npy", X.numpy())
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    for name in ("cats/2.jpg", "1.jpg", ".hidden"):
        (tmp_path / "photos" / name).write_bytes(name.encode())
    return tmp_path


@pytest.mark.parametrize(
    "data",
    [
        X,
        X.numpy(),
        (X, X[:, 0]),
        TensorDataset(X),
        DataLoader(TensorDataset(X), batch_size=3, shuffle=True),
        {"x": X},
        list(X),
    ],
    ids=lambda data: type(data).__name__,
)
def test_rows_of_each_kind_are_numbered(data: Any) -> None:
    rows = open_rows(data)
    batch = rows.batch(3, 7)
    found = batch["x"] if isinstance(batch, dict) else batch[0] if isinstance(batch, list | tuple) else batch
    assert (len(rows), torch.equal(found, X[3:7])) == (10, True)


def test_files_are_read_by_their_names(files: Path) -> None:
    for name in ("x.csv", "x.parquet"):
        rows = open_rows(str(files / name))
        assert len(rows) == 10
        for first, end in ((0, 3), (2, 7), (8, 10)):  # within a row group, over several, and to the end
            assert np.array_equal(rows.batch(first, end).to_numpy(), X[first:end])
    assert torch.equal(open_rows(files / "x.npy").batch(9, 10), X[9:])
    photos = open_rows(files / "photos")
    assert [path.name for path in photos.batch(0, 2)] == ["1.jpg", "2.jpg"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (Endless(), "Endless, whose rows have no numbers"),
        (3, "returned a int: return a dataset"),
        ({"a": X, "b": X[1:]}, "returned a dict: return a dataset"),
        ([], "without a single sample"),
        ("nothing.csv", "is not there"),
        (__file__, "a folder, or a .csv, .parquet or .npy file"),
    ],
    ids=["stream", "number", "lengths", "empty", "lost", "code"],
)
def test_what_has_no_rows_is_refused(data: Any, why: str) -> None:
    with pytest.raises(InvalidDefinition, match=why):
        open_rows(data)


def test_outputs_become_columns() -> None:
    assert list(columns_of(X, 10)) == ["output"]
    assert list(columns_of((X, X), 10)) == ["output_0", "output_1"]
    assert columns_of({"label": ["a"] * 10, "p": X[:, 0]}, 10)["label"] == ["a"] * 10
    table = columns_of(pd.DataFrame({"k": [1] * 10, "s": ["x"] * 10}), 10)
    assert (table["k"].tolist(), table["s"]) == ([1] * 10, ["x"] * 10)  # type: ignore[union-attr]
    assert columns_of([1.5] * 10, 10)["output"].dtype == torch.float64  # type: ignore[union-attr]


@pytest.mark.parametrize("output", [X[1:], X.sum(), None, {}, {"row": X}, {"a": object()}], ids=range(6))
def test_outputs_that_belong_to_no_rows_are_refused(output: Any) -> None:
    with pytest.raises(InvalidDefinition):
        columns_of(output, 10)


def test_a_shard_is_the_same_file_each_time_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    parts = [columns_of({"p": X[:4].to(torch.bfloat16), "s": list("abcd")}, 4)] * 2
    about = ShardAbout(first=0, end=9, model="1.1/5-1", bad=(BadRow(row=8, error="ValueError: no"),))
    for name in ("one", "two"):
        write_shard(tmp_path / name, joined(parts), range(8), about)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    piece = parse_piece((tmp_path / "one").read_bytes())
    assert (piece.rows.tolist(), piece.columns["s"], piece.bad) == (list(range(8)), list("abcdabcd"), about.bad)
    assert np.array_equal(piece.columns["p"], X[:4].repeat(2, 1))
    with pytest.raises(InvalidDefinition, match="output has another type or shape in some batches"):
        joined([columns_of(X, 10), columns_of(X[:, :1], 10)])


@given(rows=st.integers(0, 5000), batch=st.integers(1, 700), size=st.integers(0, 900))
def test_shards_have_each_row_once(rows: int, batch: int, size: int) -> None:
    shards = shards_of(rows, shard_rows(rows, batch, size))
    assert [row for each in shards for row in range(*each)] == list(range(rows))
    assert missing_rows(shards, rows) == []
    assert [parse_shard(each.name) for each in shards] == shards
    for lost in range(len(shards)):
        assert missing_rows(shards[:lost] + shards[lost + 1 :], rows) == [shards[lost]]
    if not size and rows:
        assert shards[0].end % batch == 0 or len(shards) == 1


def test_few_rows_give_work_to_several_slots_and_many_are_stored_seldom() -> None:
    assert len(shards_of(1000, shard_rows(1000, 8))) == 16
    assert shard_rows(10**7, 256) == 256 * 256
    assert parse_shard("rows-1-2.safetensors") is None
    assert Shard(0, 7).name == "rows-000000000000-000000000007.safetensors"


class Named(torch.nn.Module):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        return {"logits": ids * 2, "states": None}


def test_a_model_takes_its_inputs_from_batches_of_each_kind() -> None:
    double = torch.nn.Linear(2, 2)
    predict = default_prediction(double)
    for batch in (X, [X], [X, torch.zeros(10)], pd.DataFrame(X.numpy())):
        assert torch.equal(predict(double, batch), double(X))
    named = Named()
    assert torch.equal(default_prediction(named)(named, {"ids": X, "labels": X, "id": X})["logits"], X * 2)
    with pytest.raises(InvalidDefinition, match="columns of the table are no numbers: s"):
        predict(double, pd.DataFrame({"s": ["a"]}))
    with pytest.raises(InvalidDefinition, match="the rows are files"):
        predict(double, [Path("a")])


def test_the_definition_of_a_prediction() -> None:
    found = parse("def predict_data(path='x', k: int = 3): return path\ndef post(output): return output\n")
    assert (found.form, found.roles) == ("prediction", ("predict_data", "post"))
    assert found.defaults == {"path": "x", "k": 3, "on_bad": "fail", "shard_rows": 0}
    assert found.settings == {"form": "prediction", "batch_size": 256}
    training = "def predict_data(): ...\ndef model(): ...\ndef train_data(): ...\ndef loss(output, target): ...\n"
    assert parse(training).form == "functions"
    with pytest.raises(InvalidDefinition, match=r"predict \(line 2\) is called as predict\(model, batch\)"):
        parse("def predict_data(): ...\ndef predict(model): ...\n")
