"""Contract of checkpoint storage: the test class of each kind of storage inherits these tests and gives a fixture."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from kernel_backend.checkpoints.base import Checkpoints, Manifest, Streamed, checkpoint_id
from kernel_backend.checkpoints.verify import newest_attempt
from kernel_backend.checkpoints.writer import MODEL, flatten, load_model, pieces
from kernel_backend.errors import CheckpointDamaged, NotFound
from tests.torture.files import Files

TWO_PARTS = ("model", "optimizer")
LARGE = 9 * 2**20 + 1  # more than one block of an upload, and no whole number of pieces


def manifest(step: int, attempt: int = 1, **fields: object) -> Manifest:
    defaults = {"experiment": 1, "trial": 1, "epoch": step / 10, "at": 0.0, "world": 2, "seed": 0, "parts": ()}
    return Manifest(step=step, attempt=attempt, params={"lr": 0.1}, **(defaults | fields))


def commit(place: Checkpoints, step: int, attempt: int = 1, data: bytes = b"some bytes", **fields: object) -> Manifest:
    written = tuple(place.write(checkpoint_id(step, attempt), name, [data]) for name in TWO_PARTS)
    made = manifest(step, attempt, parts=written, state={"answer": 42}, **fields)
    place.commit(made)
    return made


def ids(place: Checkpoints) -> list[str]:
    return [each.id for each in place.committed()]


class CheckpointsContract:
    """Tests of the storage `place`, which is empty at first; `files` gives direct access to its files.

    `again(uid)` opens the storage again, for the trial with that identity.
    """

    def test_a_committed_checkpoint_is_listed_and_its_parts_come_back(self, place):
        commit(place, 5, data=b"weights")
        (found,) = place.committed()
        assert (found.id, found.bytes, found.state, found.pinned) == ("5-1", 14, {"answer": 42}, False)
        assert found.folder == f"{place.where}/5-1"
        assert place.read(found, "model") == b"weights"
        place.verify(found)

    def test_a_part_is_written_from_pieces_of_any_size_and_kind(self, place):
        data = random.Random(0).randbytes(LARGE)
        view = memoryview(data)
        words = torch.tensor(list(data[-9:-1]), dtype=torch.uint8).numpy().data.cast("H")  # not of single bytes
        part = place.write("5-1", "model", [data[:1], b"", view[1:-9], words, memoryview(b""), data[-1:]])
        whole = place.write("5-1", "same", [data])
        assert (part.size, part.digest) == (whole.size, whole.digest)
        made = manifest(5, parts=(part, whole))
        place.commit(made)
        assert place.read(made, "model") == data
        place.verify(made)

    def test_a_part_is_taken_from_another_checkpoint_without_all_of_it_in_memory(self, place):
        data = random.Random(1).randbytes(LARGE)
        (first, _) = commit(place, 5, data=data).parts
        (found,) = place.committed()
        part = place.write("6-1", "model", Streamed(first.size, lambda: place.stream(found, "model")))
        assert part == first
        made = manifest(6, parts=(part,))
        place.commit(made)
        assert place.read(made, "model") == data

    def test_pieces_that_were_read_once_are_followed_by_the_damage_of_their_part(self, place, files):
        data = random.Random(1).randbytes(LARGE)
        made = commit(place, 5, data=data)
        assert b"".join(bytes(piece) for piece in place.pieces(made, "model")) == data
        files.write("5-1/model.safetensors", bytes([data[0] ^ 1]) + data[1:])
        with pytest.raises(CheckpointDamaged, match="has changed since it was written"):
            for _ in place.pieces(made, "model"):
                pass
        place.discard("5-1")
        with pytest.raises(NotFound, match="has been deleted"):
            next(place.pieces(made, "model"))

    def test_a_part_streams_from_any_offset_on_once_all_of_it_was_verified(self, place, files):
        data = random.Random(1).randbytes(LARGE)
        made = commit(place, 5, data=data)
        for offset in (0, 1, LARGE // 2, LARGE - 1, LARGE, LARGE + 1):
            assert b"".join(bytes(piece) for piece in place.stream(made, "model", offset)) == data[offset:]
        with pytest.raises(CheckpointDamaged, match="no part nothing"):
            place.stream(made, "nothing")
        files.write("5-1/model.safetensors", data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(CheckpointDamaged, match="has changed since it was written"):
            place.stream(made, "model", 5)  # before the first byte, and whatever the offset
        place.discard("5-1")
        with pytest.raises(NotFound, match="has been deleted"):
            place.stream(made, "model")

    def test_a_frozen_part_of_another_checkpoint_is_taken_over_and_outlives_it(self, place, again):
        data = random.Random(2).randbytes(LARGE)
        part = place.write("5-1", "model.frozen", [data])
        place.commit(manifest(5, parts=(part,)))
        for other, step in ((place, 6), (again(), 7)):
            made = manifest(step, parts=(part,))
            assert other.reuse(made.id, part)
            other.commit(made)
        averaged = part.model_copy(update={"name": "ema.frozen"})
        assert place.reuse("8-1", averaged)
        for checkpoint in ("5-1", "6-1"):
            place.discard(checkpoint)
        (left,) = place.committed()
        place.verify(left)
        assert (left.id, place.read(left, "model.frozen")) == ("7-1", data)

    def test_no_other_part_is_taken_over(self, place):
        part = place.write("5-1", "model.frozen", [b"weights"])
        place.commit(manifest(5, parts=(part,)))
        assert not place.reuse("6-1", part.model_copy(update={"digest": "0" * 32}))
        assert not place.reuse("6-1", part.model_copy(update={"size": 6}))

    def test_a_part_without_bytes_comes_back(self, place):
        commit(place, 5, data=b"")
        (found,) = place.committed()
        place.verify(found)
        assert place.read(found, "model") == b""

    def test_without_a_manifest_there_is_no_checkpoint(self, place):
        place.write("5-1", "model", [b"weights"])
        assert place.committed() == []
        assert place.newest_verified() == (None, [])

    def test_an_empty_place_has_no_checkpoints(self, place):
        assert place.committed() == []
        assert place.newest_verified() == (None, [])
        place.sweep(attempt=9)
        place.discard("5-1")
        place.set_aside("5-1")
        assert place.committed() == []

    def test_they_are_listed_oldest_first_by_step_and_then_attempt(self, place):
        for step, attempt in [(100, 1), (20, 2), (20, 1), (3, 2)]:
            commit(place, step, attempt)
        assert ids(place) == ["3-2", "20-1", "20-2", "100-1"]

    def test_what_another_has_committed_is_listed_at_once(self, place, again):
        commit(place, 10)
        other = again()
        assert ids(other) == ["10-1"]
        commit(place, 20)
        assert ids(other) == ["10-1", "20-1"]
        place.discard("10-1")
        assert ids(other) == ["20-1"]

    def test_a_fence_leaves_out_attempts_from_its_number_on(self, place):
        commit(place, 10, attempt=1)
        commit(place, 20, attempt=2)
        assert place.newest_verified()[0].id == "20-2"
        assert place.newest_verified(fence=2)[0].id == "10-1"
        assert place.newest_verified(fence=1)[0] is None

    def test_a_damaged_one_is_set_aside_and_the_one_before_is_taken(self, place, files):
        commit(place, 10)
        commit(place, 20)
        flip(files, "20-1/optimizer.safetensors")
        found, problems = place.newest_verified()
        assert found.id == "10-1"
        assert "20-1" in problems[0]
        assert "optimizer has changed" in problems[0]
        assert ids(place) == ["10-1"]

    def test_what_is_set_aside_stays_to_be_looked_at(self, place, files):
        commit(place, 10, attempt=1)
        kept = set(files.all().values())
        place.set_aside("10-1")
        place.sweep(attempt=9)
        assert place.committed() == []
        assert set(files.all().values()) == kept

    def test_what_is_set_aside_is_known_with_its_size_and_time_until_it_is_discarded(self, place, files):
        commit(place, 10)
        commit(place, 20, data=b"x" * 1000)
        assert place.aside() == []
        began = time.time()
        place.set_aside("20-1")
        (found,) = place.aside()
        assert found.bytes > 2000
        assert began - 2 <= found.since <= time.time() + 2  # an object store tells whole seconds
        place.discard(found.name)
        assert place.aside() == []
        assert not [name for name in files.names() if name.startswith("20-1")]
        assert ids(place) == ["10-1"]

    def test_a_checkpoint_of_the_same_name_may_follow_one_that_was_set_aside(self, place):
        commit(place, 10, data=b"damaged")
        place.set_aside("10-1")
        made = commit(place, 10, data=b"anew")
        assert ids(place) == ["10-1"]
        assert place.read(made, "model") == b"anew"
        place.set_aside("10-1")
        assert ids(place) == []

    def test_a_damaged_manifest_is_set_aside_by_listing_and_told_by_verifying(self, place, files):
        commit(place, 10)
        commit(place, 20)
        commit(place, 30)
        flip(files, "20-1/manifest.json")
        assert ids(place) == ["10-1", "30-1"]
        flip(files, "30-1/manifest.json")
        found, problems = place.newest_verified()
        assert found.id == "10-1"
        assert len(problems) == 1
        assert "30-1" in problems[0]

    def test_a_manifest_that_belongs_to_another_checkpoint_is_damage(self, place, files):
        commit(place, 10)
        commit(place, 20)
        files.write("20-1/manifest.json", files.read("10-1/manifest.json"))
        found, problems = place.newest_verified()
        assert (found.id, len(problems)) == ("10-1", 1)
        assert "is that of 10-1" in problems[0]

    def test_what_is_newer_than_asked_is_left_alone(self, place, files):
        for step in (10, 20, 30):
            commit(place, step)
        flip(files, "20-1/model.safetensors")
        found, problems = place.newest_verified(upto=(15, 1))
        assert (found.id, problems) == ("10-1", [])
        assert ids(place) == ["10-1", "20-1", "30-1"]

    @pytest.mark.parametrize("harm", ["flip", "truncate", "extend", "zero a page", "remove"])
    def test_every_harm_to_a_part_is_noticed(self, place, files, harm):
        data = random.Random(0).randbytes(20_000)
        made = commit(place, 10, data=data)
        if harm == "remove":
            files.remove("10-1/model.safetensors")
        else:
            files.write("10-1/model.safetensors", harmed(data, harm))
        with pytest.raises(CheckpointDamaged, match="part model"):
            place.verify(made)
        with pytest.raises(CheckpointDamaged, match="part model"):
            place.read(made, "model")

    def test_a_part_that_no_manifest_names_is_no_part(self, place):
        with pytest.raises(CheckpointDamaged, match="has no part ema"):
            place.read(commit(place, 10), "ema")

    def test_what_was_deleted_meanwhile_is_gone_and_not_damaged(self, place):
        made = commit(place, 10)
        place.discard("10-1")
        with pytest.raises(NotFound, match="10-1"):
            place.verify(made)
        with pytest.raises(NotFound, match="10-1"):
            place.read(made, "model")

    def test_discarding_removes_it_whole_and_twice_is_once_and_never_while_it_is_pinned(self, place, files):
        made = commit(place, 10)
        place.pin("10-1", True)
        commit(place, 20)
        place.discard("10-1")
        place.verify(made)
        place.pin("10-1", False)
        place.discard("10-1")
        place.discard("10-1")
        assert {name.partition("/")[0] for name in files.names()} == {"20-1"}

    def test_what_dead_attempts_began_is_swept_and_nothing_else(self, place, files):
        commit(place, 10, attempt=1)
        place.write("20-1", "model", [b"never committed"])
        place.write("30-2", "model", [b"being written"])
        place.sweep(attempt=2)
        assert {name.partition("/")[0] for name in files.names()} == {"10-1", "30-2"}

    def test_writing_a_part_again_replaces_it(self, place):
        place.write("5-1", "model", [b"half"])
        made = commit(place, 5, data=b"whole")
        assert place.read(made, "model") == b"whole"

    def test_a_pin_is_listed_until_it_is_taken_away(self, place, again):
        commit(place, 10)
        commit(place, 20)
        place.pin("10-1", True)
        place.pin("10-1", True)
        assert [each.pinned for each in again().committed()] == [True, False]
        place.pin("10-1", False)
        place.pin("10-1", False)
        assert [each.pinned for each in place.committed()] == [False, False]
        with pytest.raises(NotFound, match="11-1"):
            place.pin("11-1", True)

    def test_what_evaluations_await_is_retained_until_each_has_judged_it(self, place, again, files):
        commit(place, 10)
        place.follow(7, True)
        place.follow(9, True)
        commit(place, 20)
        place.judge("10-1", 9, {"loss": 2.0, "f1": 0.5})
        assert [each.awaited for each in again().committed()] == [True, True]
        place.judge("10-1", 7, {"loss": 1.0, "auc": float("nan")})
        first, second = again().committed()
        assert (first.awaited, second.awaited) == (False, True)
        assert first.validation == pytest.approx({"loss": 1.0, "f1": 0.5, "auc": float("nan")}, nan_ok=True)
        assert place.newest_verified()[0].id == "20-1", "what was measured is no part of the checkpoint"
        for id in ("10-1", "20-1"):
            place.discard(id)
        assert [each.id for each in again().committed()] == ["20-1"]
        place.follow(7, False)
        place.follow(7, False)
        assert again().committed()[0].awaited
        place.follow(9, False)
        place.discard("20-1")
        place.follow(9, True)
        with pytest.raises(NotFound, match="20-1"):
            place.judge("20-1", 9, {})
        place.fence(1)
        place.clear()
        assert list(files.names()) == []

    def test_the_newest_claim_is_known_to_everybody_at_once(self, place, again):
        other = again()
        assert other.claimed() == 0
        for attempt in (1, 2, 2, 10):
            place.fence(attempt)
            assert [each.claimed() for each in (place, other)] == [attempt, attempt]

    def test_an_older_attempt_that_claims_too_late_takes_nothing_away(self, place):
        place.fence(3)
        place.fence(2)
        assert place.claimed() == 3

    def test_claims_at_the_same_moment_leave_the_newest(self, again):
        attempts = [4, 1, 3, 2, 4, 3]
        with ThreadPoolExecutor(len(attempts)) as pool:
            list(pool.map(lambda attempt: again().fence(attempt), attempts))
        assert again().claimed() == 4

    def test_older_claims_do_not_pile_up(self, place, files):
        for attempt in range(1, 6):
            place.fence(attempt)
        assert files.names() == ["claim-5"]

    def test_a_claim_is_no_checkpoint_and_is_left_alone_by_what_deletes_these(self, place, files):
        place.fence(2)
        assert (place.committed(), place.newest_verified()) == ([], (None, []))
        commit(place, 10)
        place.sweep(attempt=9)
        place.discard("10-1")
        assert files.names() == ["claim-2"]

    def test_claims_are_cleared_once_there_are_no_checkpoints(self, place, files):
        place.clear()
        commit(place, 10)
        place.fence(2)
        place.clear()
        assert (ids(place), place.claimed()) == (["10-1"], 2)
        place.discard("10-1")
        place.clear()
        assert (files.names(), place.names(), place.claimed()) == ([], [], 0)

    def test_what_only_looks_like_a_claim_is_none(self, place, files):
        for name in ("claim-", "claim-x", "claim-9.writing", "claim--9", "xclaim-9", "claim-9-1", "20-9/claim-9"):
            files.write(name, b"")
        assert place.claimed() == 0
        place.fence(1)
        assert place.claimed() == 1

    def test_what_names_another_trial_is_not_among_a_trials_checkpoints(self, again, files):
        mine, others, before = again("a" * 32), again("b" * 32), again("")
        commit(before, 10, attempt=1)
        commit(others, 20, attempt=2, uid="b" * 32)
        others.fence(2)
        lying = set(files.names())
        assert (mine.committed(), mine.newest_verified()) == ([], (None, []))
        assert (ids(before), ids(others)) == (["10-1"], ["20-2"])
        assert newest_attempt(mine.names()) == 2
        commit(mine, 20, attempt=3, uid="a" * 32)
        assert (ids(mine), ids(others)) == (["20-3"], ["20-2"])
        assert mine.newest_verified()[0].uid == "a" * 32
        assert lying <= set(files.names())

    def test_all_names_are_told_and_none_of_an_empty_place(self, place):
        assert list(place.names()) == []
        place.write("20-4", "model", [b"being written"])
        place.fence(3)
        assert sorted(place.names()) == ["20-4", "claim-3"]
        assert newest_attempt(place.names()) == 4

    def test_a_listed_model_is_loaded_from_where_it_lies(self, place):
        net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        tree, tensors = flatten(dict(net.state_dict()))
        place.commit(manifest(1, parts=(place.write("1-1", MODEL, pieces(tensors)),), state={MODEL: tree}))
        loaded = load_model(place, place.committed()[0])
        assert list(loaded) == list(net.state_dict())
        assert all(torch.equal(loaded[name], value) for name, value in net.state_dict().items())


def flip(files: Files, name: str) -> None:
    files.write(name, harmed(files.read(name), "flip"))


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
