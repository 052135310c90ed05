"""What every home of checkpoints promises; a home's test class gives it a fixture and inherits the sentences."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_backend.checkpoints.base import Manifest, checkpoint_id, dump, parse
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.writer import MODEL, encode, flatten, load_model
from kernel_backend.errors import CheckpointDamaged


def commit(home, step, attempt=1, data=b"some bytes", parts=("model", "optimizer")) -> Manifest:
    written = tuple(home.write(checkpoint_id(step, attempt), name, data) for name in parts)
    manifest = Manifest(
        experiment=1, trial=1, attempt=attempt, step=step, epoch=step / 10, at=0.0, world=2, seed=0,
        params={"lr": 0.1}, parts=written, state={"answer": 42},
    )  # fmt: skip
    home.commit(manifest)
    return manifest


class CheckpointsContract:
    """Sentences about `home`, empty at first; `damage(id, name)` gives the file to be damaged."""

    def test_a_committed_checkpoint_is_listed_and_its_parts_come_back(self, home):
        commit(home, 5, data=b"weights")
        (found,) = home.committed()
        assert (found.id, found.bytes, found.state) == ("5-1", 14, {"answer": 42})
        assert home.read(found, "model") == b"weights"
        home.verify(found)

    def test_without_a_manifest_there_is_no_checkpoint(self, home):
        home.write("5-1", "model", b"weights")
        assert home.committed() == []
        assert home.newest() is None

    def test_they_are_listed_oldest_first_by_step_and_then_attempt(self, home):
        for step, attempt in [(100, 1), (20, 2), (20, 1), (3, 2)]:
            commit(home, step, attempt)
        assert [each.id for each in home.committed()] == ["3-2", "20-1", "20-2", "100-1"]
        assert home.newest().id == "100-1"

    def test_a_fence_leaves_out_attempts_from_its_number_on(self, home):
        commit(home, 10, attempt=1)
        commit(home, 20, attempt=2)
        assert home.newest(fence=2).id == "10-1"
        assert home.newest(fence=1) is None

    def test_a_damaged_one_is_set_aside_and_the_one_before_is_taken(self, home, damage):
        commit(home, 10)
        commit(home, 20)
        flip(damage("20-1", "optimizer.safetensors"))
        found, problems = home.newest_verified()
        assert found.id == "10-1"
        assert "20-1" in problems[0]
        assert "optimizer has changed" in problems[0]
        assert [each.id for each in home.committed()] == ["10-1"]

    def test_a_damaged_manifest_is_set_aside_by_listing(self, home, damage):
        commit(home, 10)
        commit(home, 20)
        flip(damage("20-1", "manifest.json"))
        assert [each.id for each in home.committed()] == ["10-1"]

    def test_what_is_newer_than_asked_is_left_alone(self, home):
        commit(home, 10)
        commit(home, 20)
        found, problems = home.newest_verified(upto=(15, 1))
        assert (found.id, problems) == ("10-1", [])
        assert home.newest().id == "20-1"

    @pytest.mark.parametrize("harm", ["flip", "truncate", "extend", "zero a page", "remove"])
    def test_every_harm_to_a_part_is_noticed(self, home, damage, harm):
        data = random.Random(0).randbytes(20_000)
        manifest = commit(home, 10, data=data)
        path = damage("10-1", "model.safetensors")
        if harm == "remove":
            path.unlink()
        else:
            path.write_bytes(harmed(data, harm))
        with pytest.raises(CheckpointDamaged, match="model"):
            home.verify(manifest)

    def test_discarding_removes_it_whole_and_twice_is_once(self, home):
        commit(home, 10)
        home.discard("10-1")
        home.discard("10-1")
        assert home.committed() == []

    def test_writing_a_part_again_replaces_it(self, home):
        home.write("5-1", "model", b"half")
        commit(home, 5, data=b"whole")
        assert home.read(home.newest(), "model") == b"whole"


class TestDirectory(CheckpointsContract):
    @pytest.fixture
    def home(self, tmp_path):
        return Directory(tmp_path / "checkpoints")

    @pytest.fixture
    def damage(self, tmp_path):
        return lambda checkpoint, name: tmp_path / "checkpoints" / checkpoint / name

    def test_a_failed_write_leaves_nothing(self, home, tmp_path, monkeypatch):
        def full(*args):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.posix_fallocate", full)
        with pytest.raises(OSError, match="No space"):
            home.write("5-1", "model", b"weights")
        assert list((tmp_path / "checkpoints" / "5-1").iterdir()) == []

    def test_what_dead_attempts_began_is_swept_and_nothing_else(self, home, tmp_path):
        commit(home, 10, attempt=1)
        home.write("20-1", "model", b"never committed")
        home.write("30-2", "model", b"being written")
        home.sweep(attempt=2)
        assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["10-1", "30-2"]

    def test_a_trial_without_a_folder_has_no_checkpoints(self, tmp_path):
        assert Directory(tmp_path / "nowhere").committed() == []

    def test_a_listed_model_is_loaded_from_where_it_lies(self, home):
        net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        tree, tensors = flatten(dict(net.state_dict()))
        part = home.write("1-1", MODEL, encode(tensors))
        manifest = commit(home, 2).model_copy(update={"step": 1, "parts": (part,), "state": {MODEL: tree}})
        home.commit(manifest)
        loaded = load_model(home.committed()[0])
        assert list(loaded) == list(net.state_dict())
        assert all(torch.equal(loaded[name], value) for name, value in net.state_dict().items())


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(bit=st.integers(min_value=0))
def test_no_flipped_bit_of_a_manifest_goes_unnoticed(bit):
    manifest = Manifest(
        experiment=1, trial=1, attempt=1, step=7, epoch=0.7, at=1.5, world=2, seed=0, params={}, parts=()
    )
    data = bytearray(dump(manifest))
    assert parse(bytes(data)) == manifest
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    with contextlib.suppress(CheckpointDamaged):
        assert parse(bytes(data)) == manifest  # white space between the words carries nothing


def flip(path: Path) -> None:
    path.write_bytes(harmed(path.read_bytes(), "flip"))


def harmed(data: bytes, harm: str) -> bytes:
    if harm == "truncate":
        return data[:-1]
    if harm == "extend":
        return data + b"\0"
    if harm == "zero a page":
        return data[:4096] + bytes(4096) + data[8192:]
    changed = bytearray(data)
    changed[len(data) // 2] ^= 4
    return bytes(changed)
