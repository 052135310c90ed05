"""Test checkpoints in a folder: the contract of all storage, and properties that only a file system has."""

from __future__ import annotations

import resource

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_backend.checkpoints.base import dump, parse
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.storage import CheckpointStorage, open_storage
from kernel_backend.errors import CheckpointDamaged
from tests.contract.checkpoints_contract import CheckpointsContract, commit, ids, manifest
from tests.torture.files import Files


def spoiled(manifests):
    return [each._replace(data=b"") for each in manifests]


class TestDirectory(CheckpointsContract):
    @pytest.fixture
    def place(self, tmp_path):
        return Directory(tmp_path / "1" / "1")

    @pytest.fixture
    def again(self, tmp_path):
        return lambda uid=None: Directory(tmp_path / "1" / "1", uid)

    @pytest.fixture
    def files(self, tmp_path):
        return Files(str(tmp_path / "1" / "1"))

    def test_a_failed_write_leaves_nothing(self, place, files):
        with writing_no_more_than(1000), pytest.raises(OSError, match="File too large"):
            place.write("5-1", "model", [b"x" * 600, b"y" * 600])
        assert files.names() == []

    def test_a_failed_commit_leaves_no_manifest(self, place, files):
        part = place.write("5-1", "model", [b"weights"])
        with writing_no_more_than(100), pytest.raises(OSError, match="File too large"):
            place.commit(manifest(5, parts=(part,)))
        assert files.names() == ["5-1/model.safetensors"]

    def test_what_was_misread_once_is_not_set_aside(self, place, monkeypatch):
        commit(place, 10)
        for way, spoil in (("_stream", lambda pieces: iter([b"nonsense"])), ("_manifests", spoiled)):
            right, times = getattr(place, way), iter([spoil])
            monkeypatch.setattr(
                place, way, lambda *asked, right=right, times=times: next(times, lambda same: same)(right(*asked))
            )
            found, problems = place.newest_verified()
            assert (found.id, problems) == ("10-1", [])
            assert list(times) == []
        assert place.aside() == []

    def test_the_trials_of_an_experiment_share_one_file_of_a_frozen_part(self, place, tmp_path):
        part = place.write("5-1", "model.frozen", [b"weights"])
        place.commit(manifest(5, parts=(part,)))
        other = Directory(tmp_path / "1" / "2")
        assert other.reuse("5-1", part)
        assert (tmp_path / "1" / "2" / "5-1" / "model.frozen.safetensors").stat().st_nlink == 2
        assert not Directory(tmp_path / "2" / "1").reuse("5-1", part)  # of another experiment

    def test_a_damaged_frozen_part_is_not_taken_over(self, place, files, tmp_path):
        part = place.write("5-1", "model.frozen", [b"weights"])
        place.commit(manifest(5, parts=(part,)))
        files.write("5-1/model.frozen.safetensors", b"WEIGHTS")
        assert not Directory(tmp_path / "1" / "2").reuse("5-1", part)

    def test_a_file_where_a_checkpoint_should_be_is_set_aside_like_one(self, place, files):
        commit(place, 10)
        files.write("20-1", b"no folder")
        assert ids(place) == ["10-1"]
        assert place.aside() == []
        place.discard("20-1.bad")
        assert ids(place) == ["10-1"]

    def test_it_knows_how_much_room_there_is_before_its_folder_exists(self, place):
        assert place.free() > 0
        commit(place, 5)
        assert place.free() > 0

    def test_a_part_that_cannot_be_read_for_now_is_not_damaged(self, place, files, tmp_path):
        made = commit(place, 5)
        path = tmp_path / "1" / "1" / "5-1" / "model.safetensors"
        path.unlink()
        path.symlink_to(path)  # an error (ELOOP) that says nothing of the bytes
        with pytest.raises(OSError, match="symbolic links"):
            place.newest_verified()
        assert ids(place) == [made.id]


class writing_no_more_than:  # noqa: N801 - it reads as a sentence
    """Limit the size of files in the block to simulate a full disk."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __enter__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


def test_a_place_is_a_folder_or_a_url(tmp_path):
    assert open_storage(str(tmp_path)).where == str(tmp_path)
    assert open_storage(f"file://{tmp_path}").where == str(tmp_path)
    assert open_storage("memory://runs/").where == "memory://runs"
    assert CheckpointStorage("memory://runs/").open(12, 1).where == "memory://runs/12/1"
    assert CheckpointStorage(f"{tmp_path}").where(12, 1) == f"{tmp_path}/12/1"


@pytest.mark.parametrize("root", ["", "memory://numbered"])
def test_places_know_the_largest_number_that_has_one(tmp_path, root):
    storage = CheckpointStorage(root or str(tmp_path), lambda experiment, trial: f"{experiment}.{trial}")
    assert storage.largest_number() == 0
    for number in (3, 12):
        commit(storage.open(number, 1), 10, uid=f"{number}.1")
    open_storage(f"{root or tmp_path}/notes").write("5-1", "model", [b"of no experiment"])
    assert storage.largest_number() == 12
    assert ids(storage.open(12, 1)) == ["10-1"]


def test_a_manifest_of_before_says_nothing_of_whose_it_is_and_stays_as_it_was_written():
    written = dump(manifest(5))
    assert b"uid" not in written
    assert dump(parse(written)) == written
    assert parse(dump(manifest(5, uid="a"))).uid == "a"


@settings(max_examples=200, deadline=None)
@given(bit=st.integers(min_value=0))
def test_no_flipped_bit_of_a_manifest_goes_unnoticed(bit):
    made = manifest(7, metrics={"loss": float("inf")}, state={"a": [1.5e-300, "ü", None]})
    data = bytearray(dump(made))
    assert parse(bytes(data)) == made
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    with pytest.raises(CheckpointDamaged):
        parse(bytes(data))
