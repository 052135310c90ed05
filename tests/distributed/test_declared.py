"""Test that an attempt compares declared data at its start, reports changes, and trains on the changed data."""

from __future__ import annotations

import pytest
from gang import DIGITS, Trial

from kernel_backend.data import declare
from tests.support.builders import snapshot

pytestmark = pytest.mark.distributed


@pytest.fixture
def run(tmp_path):
    """Run a trial that declares the folder `data`."""
    (tmp_path / "data").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "data" / name).write_text(name)
    trial = Trial(tmp_path / "trial", slots=2, epochs=1)
    found = declare(["data"], tmp_path)
    code = trial.folder / "code"
    (code / "snapshot.json").write_text(snapshot(DIGITS).model_copy(update={"data": found.data}).model_dump_json())
    for name, content in found.files.items():
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).write_bytes(content)
    return trial


def test_data_that_is_as_it_was_is_not_spoken_of(run):
    assert run.run().notes() == []


def test_data_that_has_changed_is_told_and_trained_on(run, tmp_path):
    (tmp_path / "data" / "a").write_text("A")
    (tmp_path / "data" / "d").write_text("d")
    ran = run.run()
    assert set(ran.codes) == {0}
    assert ran.notes() == [
        f"data has changed since it was submitted: {tmp_path}/data: 1 file was added (d), 1 file has other bytes (a)"
    ]


def test_data_that_is_gone_is_told(run, tmp_path):
    for each in (tmp_path / "data").iterdir():
        each.unlink()
    (said,) = run.run().notes()
    assert f"{tmp_path}/data has no file in it" in said
