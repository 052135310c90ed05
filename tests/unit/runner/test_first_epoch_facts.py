"""Test that a kill within the first epoch neither repeats nor loses what is reported about its data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_backend.model.experiment import Config
from kernel_backend.runner import opened_files
from kernel_backend.runner.data.sample_digest import SampleDigests
from kernel_backend.runner.first_epoch import FirstEpoch


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    yield
    opened_files.stop()


def attempt(tmp_path: Path, validates: bool = True) -> tuple[FirstEpoch, list[str]]:
    """Run a single rank, and return the names of the provenance records and the notes that it reports."""
    opened_files.stop()
    opened_files.watch(lambda path: path.startswith(str(tmp_path)))
    said: list[str] = []
    job: Any = SimpleNamespace(config=Config(), home=str(tmp_path / "home"), experiment=1, trial=1)
    ranks: Any = SimpleNamespace(rank=0, size=1)
    spool: Any = SimpleNamespace(say=lambda record: said.append(getattr(record, "name", "") or record.text))
    return FirstEpoch(job, ranks, spool, "code", validates), said


def shares(last: bool) -> Any:
    return [SimpleNamespace(seen=SampleDigests(2, 5), last=last)]


def kept(epoch: FirstEpoch) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(epoch.state()))
    return found


def test_a_kill_before_the_validation_says_nothing_twice_and_loses_no_file(tmp_path: Path):
    (tmp_path / "train.csv").write_text("1")
    first, said = attempt(tmp_path)
    (tmp_path / "train.csv").read_text()
    first.take(shares(last=False))
    first.take(shares(last=True))
    assert said == ["delivered"]
    state = kept(first)
    assert state["files"] == [str(tmp_path / "train.csv")]
    second, said = attempt(tmp_path)
    second.restore(state)
    second.take(shares(last=True))  # of the second epoch
    second.validated()
    second.close()
    assert said == ["observed"]
    assert kept(second) == {"over": True}
    third, said = attempt(tmp_path)
    third.restore(kept(second))
    third.take(shares(last=True))
    third.validated()
    third.finish()
    assert said == []


def test_without_a_validation_all_is_said_with_the_last_batch(tmp_path: Path):
    epoch, said = attempt(tmp_path, validates=False)
    epoch.take(shares(last=True))
    epoch.close()
    assert said == ["delivered", "observed"]


def test_a_training_that_ends_early_says_what_there_was(tmp_path: Path):
    epoch, said = attempt(tmp_path)
    epoch.take(shares(last=False))
    epoch.finish()
    epoch.close()
    assert said == ["delivered", "observed"]


def test_a_rank_that_writes_a_file_again_and_again_is_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    epoch, said = attempt(tmp_path)
    epoch.take(shares(last=False))
    for _ in range(3):  # checkpoints
        Path("model.pt").write_text("1")
        epoch.state()
    epoch.finish()
    epoch.close()
    assert said == ["delivered", "observed"]  # and no warning
