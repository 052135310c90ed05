"""Test copying a checkpoint to another trial, byte by byte, while its own trial may delete it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.checkpoints.base import Manifest, checkpoint_id
from kernel_backend.checkpoints.copy import copy_checkpoint
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.errors import NotFound


@pytest.fixture
def places(tmp_path: Path) -> CheckpointStorage:
    return CheckpointStorage(str(tmp_path))


def commit(places: CheckpointStorage, step: int) -> None:
    """Commit a checkpoint of trial 12.3."""
    place, id = places.open(12, 3), checkpoint_id(step, 1)
    written = tuple(place.write(id, name, [f"{name} at {step}".encode()]) for name in ("model", "optimizer"))
    about = {"experiment": 12, "trial": 3, "attempt": 1, "step": step, "epoch": 1.0, "at": 0.0}
    place.commit(Manifest(**about, world=1, seed=0, params={"lr": 0.1}, parts=written))


def taken(places: CheckpointStorage, or_newer: bool = False) -> list[tuple[str, bytes]]:
    """Copy checkpoint 12.3/20-1 into trial 12.9; return the trial's checkpoint ids, each with the model's bytes."""
    place = places.open(12, 9)
    copy_checkpoint(places, "12.3/20-1", place, 12, 9, or_newer=or_newer)
    assert {(each.experiment, each.trial) for each in place.committed()} == {(12, 9)}
    return [(each.id, place.read(each, "model")) for each in place.committed()]


@pytest.mark.parametrize("or_newer", [False, True])
def test_the_named_one_is_taken_where_it_is_there(places: CheckpointStorage, or_newer: bool) -> None:
    for step in (10, 20, 30):
        commit(places, step)
    assert taken(places, or_newer) == [("20-0", b"model at 20")]


def test_one_that_was_deleted_is_named_or_the_newest_after_it_taken(places: CheckpointStorage) -> None:
    for step in (10, 30, 40):
        commit(places, step)
    with pytest.raises(NotFound, match=r"checkpoint 20-1 of 12\.3, from which this was to begin, has been deleted"):
        taken(places)
    assert taken(places, or_newer=True) == [("40-0", b"model at 40")]


def test_nothing_newer_is_nothing(places: CheckpointStorage) -> None:
    commit(places, 10)
    with pytest.raises(NotFound):
        taken(places, or_newer=True)


class TrainsOn(CheckpointStorage):
    """Storage in which 12.3 commits step 30 and deletes older checkpoints while 20-1 is being read."""

    def open(self, experiment: int, trial: int) -> Directory:
        places, place = CheckpointStorage(self._root), Directory(Path(self.where(experiment, trial)))
        stream = place.stream

        def deleted(manifest: Manifest, part: str):  # type: ignore[no-untyped-def]
            if manifest.step == 20:
                commit(places, 30)
                place.discard("20-1")
            return stream(manifest, part)

        place.stream = deleted  # type: ignore[method-assign]
        return place


def test_one_that_is_deleted_while_it_is_copied_is_left_for_the_newest(tmp_path: Path) -> None:
    commit(CheckpointStorage(str(tmp_path)), 20)
    trains_on = TrainsOn(str(tmp_path))
    with pytest.raises(NotFound, match=r"checkpoint 20-1 of 12\.3, from which this was to begin, has been deleted"):
        taken(trains_on)
    commit(CheckpointStorage(str(tmp_path)), 20)
    assert taken(trains_on, or_newer=True) == [("30-0", b"model at 30")]


@pytest.mark.parametrize(("parts", "said"), [(("model", "optimizer"), b"model"), (("ema", "model"), b"ema")])
def test_of_its_weights_alone_nothing_else_is_copied_and_they_are_at_step_0(
    places: CheckpointStorage, parts: tuple[str, ...], said: bytes
) -> None:
    place = places.open(12, 3)
    written = tuple(place.write("20-1", name, [name.encode()]) for name in parts)
    about = {"experiment": 12, "trial": 3, "attempt": 1, "step": 20, "epoch": 1.0, "at": 0.0, "metrics": {"loss": 0.5}}
    state = {name: {"of": name} for name in parts}
    place.commit(Manifest(**about, world=1, seed=0, params={"lr": 0.1}, parts=written, state=state))
    copy_checkpoint(places, "12.3/20-1:weights", places.open(13, 1), 13, 1)
    (found,) = places.open(13, 1).committed()
    assert (found.id, found.epoch, found.metrics, found.state) == ("0-0", 0.0, {}, {"model": {"of": said.decode()}})
    (part,) = found.parts
    assert places.open(13, 1).read(found, part.name) == said


def test_of_weights_that_were_deleted_no_newer_ones_are_taken(places: CheckpointStorage) -> None:
    commit(places, 30)
    with pytest.raises(NotFound, match="checkpoint 20-1 of"):
        copy_checkpoint(places, "12.3/20-1:weights", places.open(13, 1), 13, 1, or_newer=True)


def test_a_copy_names_its_own_trial_and_nothing_is_copied_from_a_trial_of_the_same_numbers(tmp_path: Path) -> None:
    lost, now = (
        CheckpointStorage(str(tmp_path), lambda *trial: "lost"),
        CheckpointStorage(str(tmp_path), lambda *trial: f"now {trial}"),
    )
    commit(CheckpointStorage(str(tmp_path)), 20)  # names none, as those of before
    for places in (lost, now):
        with pytest.raises(NotFound, match=r"checkpoint 20-1 of 12\.3"):
            taken(places)
    before = CheckpointStorage(str(tmp_path), lambda *trial: "" if trial == (12, 3) else "now")
    assert taken(before) == [("20-0", b"model at 20")]
    assert [each.uid for each in before.open(12, 9).committed()] == ["now"]
