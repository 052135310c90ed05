"""Test when training waits for a checkpoint that is being written, and the errors for state that cannot be saved."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernel_backend.checkpoints.base import Data, Manifest, Part
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.errors import CheckpointFailed, DaylightError, PlaceUnavailable
from kernel_backend.model.experiment import Config, Keep
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import Share
from kernel_backend.retry import RetryPolicy
from kernel_backend.runner.checkpoint.checkpointer import Checkpointer, Position
from kernel_backend.runner.checkpoint.contents import TrainingContents
from kernel_backend.runner.checkpoint.saving import HostCopy
from kernel_backend.runner.checkpoint.stateful import Model
from kernel_backend.runner.ipc import Spool
from kernel_backend.runner.logical_ranks import LogicalRanks
from kernel_backend.runner.ranks.backends import SingleRank

CPU = torch.device("cpu")
WAITS_S = 0.2  # for what must not happen
PATIENCE_S = 60.0  # for what must


class Slow(Directory):
    """Storage that writes only when a test allows it, or that refuses to write."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.go, self.refuses = threading.Event(), False

    def write(self, checkpoint: str, name: str, data: Data) -> Part:
        self.go.wait()
        if self.refuses:
            raise OSError("the store does not answer")
        return super().write(checkpoint, name, data)


class Saving:
    """Training of one rank whose weights are the number of its step."""

    def __init__(
        self,
        folder: Path,
        model: nn.Module | None = None,
        copy: HostCopy | None = None,
        refuses: Callable[[Manifest], str] = lambda _: "",
        **changes: Any,
    ) -> None:
        self.model = model or nn.Linear(3, 1)
        self.home, self.spool = Slow(folder / "checkpoints"), folder / "spool.jsonl"
        contents = TrainingContents(
            {"model": Model(self.model)}, LogicalRanks(self.model, range(1), 1), None, SingleRank(), 0
        )
        spool = Spool(self.spool, 0)
        launch, copy = job(folder).model_copy(update=changes), copy or HostCopy(CPU)
        self.checkpointer = Checkpointer(
            launch, SingleRank(), spool, self.home, contents, {}, copy, eager=True, refuses=refuses
        )

    def save(self, step: int, **metrics: float) -> threading.Thread:
        """Save a checkpoint at `step` in a thread that represents the training."""
        training = threading.Thread(target=self._save, args=(step, metrics), daemon=True)
        training.start()
        return training

    def _save(self, step: int, metrics: dict[str, float]) -> None:
        with torch.no_grad():
            self.model.weight.fill_(step)
        self.checkpointer.save(Position(step, step / 10, metrics, {}))
        self.checkpointer.settle()

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, after checking its weights."""
        self.checkpointer.close()
        found = self.home.committed()
        assert all(f"{each.step}.0" in str(self._weights(each)) for each in found)
        return [each.step for each in found]

    def _weights(self, manifest: Any) -> Any:
        from kernel_backend.checkpoints.writer import load_model

        return load_model(self.home, manifest)["weight"].tolist()

    def notes(self) -> list[str]:
        """Return the texts of all notes in the spool."""
        records = [json.loads(line) for line in self.spool.read_text().splitlines()]
        return [record["text"] for record in records if record["type"] == "note"]


def job(folder: Path) -> LaunchSpec:
    return LaunchSpec(
        experiment=1,
        trial=1,
        attempt=1,
        config=Config(keep=Keep(latest=9)),
        params={},
        placement=(Share(node="here", kind="cpu", address="127.0.0.1", slots=(0,)),),
        python="python",
        cwd=str(folder),
        code=str(folder),
        snapshot="0" * 64,
        checkpoints=str(folder / "checkpoints"),
        home=str(folder),
    )


@pytest.fixture
def saving(tmp_path: Path) -> Iterator[Saving]:
    saving = Saving(tmp_path)
    yield saving
    saving.home.go.set()
    saving.checkpointer.close()


def waits(training: threading.Thread) -> bool:
    training.join(WAITS_S)
    return training.is_alive()


def goes_on(training: threading.Thread) -> bool:
    """Return True if training continues although nothing is written."""
    training.join(PATIENCE_S)
    return not training.is_alive()


def test_the_next_checkpoint_waits_until_the_one_before_is_written(saving):
    assert goes_on(saving.save(4))
    second = saving.save(8)
    assert waits(second)
    saving.home.go.set()
    second.join()
    assert saving.steps() == [4, 8]


def test_a_validated_one_which_may_be_the_best_does_not_wait_and_is_not_lost(saving):
    assert goes_on(saving.save(4))
    assert goes_on(saving.save(6, loss=0.5))
    third = saving.save(7, loss=0.4)
    assert waits(third)  # there are two sets of memory
    saving.home.go.set()
    third.join()
    assert saving.steps() == [4, 6, 7]


def test_a_store_that_does_not_answer_is_told_of_once_and_waited_for_no_more(saving):
    saving.home.refuses = True
    saving.home.go.set()
    saving.save(4).join()
    saving.checkpointer.close()
    saving.home.go.clear()  # from now on it takes its time to refuse
    assert all(goes_on(saving.save(step)) for step in (8, 12, 16))
    saving.home.go.set()
    assert saving.steps() == []
    assert saving.notes() == ["checkpoint at step 4 could not be written: the store does not answer; training goes on"]
    saving.home.refuses = False
    saving.save(20).join()
    assert saving.steps() == [20]
    assert saving.notes()[1:] == ["checkpoints are written again, from step 20 on"]


class Scarce(HostCopy):
    """Simulated host without free memory."""

    scarce = True

    def begin(self, parts: Any, lazily: bool) -> Any:
        if self.scarce:
            raise MemoryError("DefaultCPUAllocator: can't allocate memory")
        return super().begin(parts, lazily)


def test_a_host_without_memory_for_the_copy_costs_a_checkpoint_and_no_training(tmp_path):
    copy = Scarce(CPU)
    saving = Saving(tmp_path, copy=copy)
    saving.home.go.set()
    saving.save(4).join()
    copy.scarce = False
    saving.save(8).join()
    assert saving.steps() == [8]
    assert "step 4 could not be written: DefaultCPUAllocator: can't allocate memory" in saving.notes()[0]


def test_memory_that_could_not_be_had_is_asked_for_again(monkeypatch):
    memory, empty = HostCopy(CPU), torch.empty

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("can't allocate memory")

    parts = {"model": {"weight": torch.ones(3)}}
    monkeypatch.setattr(torch, "empty", refused)
    for _ in range(3):  # more often than there are sets
        with pytest.raises(MemoryError, match="can't allocate"):
            memory.begin(parts, lazily=False)
    monkeypatch.setattr(torch, "empty", empty)
    assert memory.begin(parts, lazily=False).copies["model"]["weight"].tolist() == [1.0] * 3


@pytest.mark.parametrize("persistent", [True, False])
def test_what_no_checkpoint_can_hold_is_named_before_the_first_step(tmp_path, persistent):
    model = nn.Linear(3, 1)
    model.register_buffer("phases", torch.zeros(2, dtype=torch.complex128), persistent=persistent)
    with pytest.raises(DaylightError, match=r"phases is a tensor of torch\.complex128, which a checkpoint cannot hold"):
        Saving(tmp_path, model).checkpointer.check()


def test_a_last_checkpoint_that_fails_leaves_the_one_that_was_committed_at_its_step(saving, monkeypatch):
    monkeypatch.setattr("kernel_backend.runner.checkpoint.checkpointer.RETRY", RetryPolicy((0.0,), tries=2))
    saving.home.go.set()
    saving.save(4).join()
    assert saving.steps() == [4]
    saving.home.refuses = True
    with pytest.raises(CheckpointFailed, match=r"at step 4, could not be written .*; the newest is 4-1"):
        saving.checkpointer.finish(Position(4, 0.4, {}, {}))
    assert saving.steps() == [4]


def test_checkpoints_that_cannot_be_reached_are_said_after_some_tries(saving, monkeypatch):
    tries: list[int] = []

    def away(attempt: int) -> None:
        tries.append(attempt)
        raise ConnectionError("no route to host")

    monkeypatch.setattr("kernel_backend.runner.checkpoint.checkpointer.RETRY", RetryPolicy((0.0,), tries=5))
    monkeypatch.setattr(saving.home, "fence", away)
    with pytest.raises(PlaceUnavailable, match=r"the checkpoints in /.* cannot be reached: no route to host"):
        saving.checkpointer.restore()
    assert len(tries) == 5


def test_a_training_goes_on_from_the_newest_checkpoint_that_it_does_not_refuse(tmp_path):
    first = Saving(tmp_path)
    first.home.go.set()
    for step in (1, 2, 3):
        first.save(step).join()
    assert first.steps() == [1, 2, 3]
    second = Saving(tmp_path, refuses=lambda each: "not here" * (each.step > 1), attempt=2, resume_from="3-1")
    found = second.checkpointer.restore()
    assert found is not None
    assert (found.id, [each.id for each in second.home.committed()]) == ("1-1", ["1-1"])
    told = "checkpoint 3-1 is set aside: not here; checkpoint 2-1 is set aside: not here"
    assert second.notes() == [f"{told}; training goes on from checkpoint 1-1, steps 2 to 3 are trained again"]
