"""Test that data is processed in slices with one digest, and that the setting selects the storage."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.app import Daylight
from kernel_backend.checkpoints.base import Part, digest
from kernel_backend.checkpoints.streams import Digesting, size_of, slices


@given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
def test_slices_are_the_same_bytes_in_the_same_order_and_none_is_too_long(data, most):
    taken = [bytes(each) for each in slices([memoryview(each) for each in data], most)]
    assert b"".join(taken) == b"".join(data)
    assert all(0 < len(each) <= most for each in taken)
    assert size_of(data) == sum(map(len, taken))


@given(st.lists(st.binary(max_size=20)))
def test_what_passes_in_pieces_has_the_digest_of_the_whole(data):
    seen = Digesting()
    for each in data:
        seen.take(each)
    assert seen.part("model") == Part(name="model", size=size_of(data), digest=digest(b"".join(data)))


def test_the_service_keeps_checkpoints_in_its_home_or_where_it_is_told_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Daylight(home="here").checkpoints == str(tmp_path / "here" / "checkpoints")
    assert Daylight(checkpoints="~/runs").checkpoints == str(Path.home() / "runs")
    assert Daylight(checkpoints="runs").checkpoints == str(tmp_path / "runs")
    assert Daylight(checkpoints="s3://bucket/runs").checkpoints == "s3://bucket/runs"
