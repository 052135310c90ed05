"""Test that untrained weights are written once, whatever is frozen, unfrozen or changed without gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from kernel_backend.checkpoints.base import Manifest, bytes_stored
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.writer import load_model
from kernel_backend.runner.checkpoint.checkpointer import Checkpointer, Position
from kernel_backend.runner.checkpoint.contents import Read, TrainingContents
from kernel_backend.runner.checkpoint.ema import WeightAverage
from kernel_backend.runner.checkpoint.saving import HostCopy
from kernel_backend.runner.checkpoint.stateful import Model, Optimizer
from kernel_backend.runner.ipc import Spool
from kernel_backend.runner.logical_ranks import LogicalRanks
from kernel_backend.runner.ranks.backends import SingleRank
from tests.unit.runner.test_checkpointer import CPU, job

State = dict[str, Tensor]


class Adapted(nn.Module):
    """Frozen base with statistics and a table, and a small trained adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64))
        self.base.requires_grad_(False)
        self.base.register_buffer("table", torch.rand(512))
        self.adapter = nn.Linear(64, 2)

    def forward(self, batch: Tensor) -> Tensor:
        return self.adapter(self.base(batch))


class Training:
    """Training of one rank on `model`, which saves whenever a test requests it."""

    def __init__(self, folder: Path, model: nn.Module, ema: float | None = None, eager: bool = False) -> None:
        self.model, self.optimizer = model, torch.optim.Adam(model.parameters(), lr=0.1)
        self.average = WeightAverage(model, ema) if ema is not None else None
        self.home, self.states = Directory(folder / "checkpoints"), dict[int, State]()
        parts = {"model": Model(model), "optimizer": Optimizer(self.optimizer)}
        parts |= {"ema": self.average} if self.average is not None else {}
        contents = TrainingContents(parts, LogicalRanks(model, range(1), 1), None, SingleRank(), 0)
        self.checkpointer = Checkpointer(
            job(folder), SingleRank(), Spool(folder / "spool", 0), self.home, contents, {}, HostCopy(CPU), eager=eager
        )
        self.contents, self.now = contents, 0

    def steps(self, count: int, save: bool = True) -> None:
        for _ in range(count):
            self.now += 1
            self.optimizer.zero_grad()
            self.model(torch.rand(8, 64)).square().mean().backward()
            self.checkpointer.settle()
            self.optimizer.step()
            if self.average is not None:
                self.average.update(self.model)
            if save:
                self.checkpointer.save(Position(self.now, self.now / 10, {}, {}))
                self.states[self.now] = {name: value.clone() for name, value in self.model.state_dict().items()}

    def saved(self) -> list[Manifest]:
        """Return all checkpoints, after checking that each has the weights of its step."""
        self.checkpointer.settle()
        self.checkpointer.close()
        found = self.home.committed()
        for each in found:
            self.home.verify(each)
            loaded = load_model(self.home, each)
            assert list(loaded) == list(self.states[each.step])
            assert all(torch.equal(loaded[name], value) for name, value in self.states[each.step].items())
        return found

    def frozen(self) -> list[str | None]:
        """Return the digest of each checkpoint's frozen part."""
        return [part.digest if (part := each.part("model.frozen")) else None for each in self.saved()]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def files(training: Training, part: str) -> int:
    """Return the number of different files of a part."""
    found = Path(training.home.where).glob(f"*/{part}.safetensors")
    return len({each.stat().st_ino for each in found})


def test_the_base_is_written_once_though_its_statistics_move(tmp_path):
    training = Training(tmp_path, Adapted())
    training.steps(4)
    assert len(set(training.frozen())) == 1
    assert files(training, "model.frozen") == 1
    first = training.saved()[0]
    assert {part.name for part in first.parts} == {"model", "model.frozen", "optimizer"}
    assert bytes_stored([first] * 4, linked=True) < 4 * first.bytes == bytes_stored([first] * 4, linked=False)


def test_statistics_of_a_base_that_only_evaluates_are_part_of_it(tmp_path):
    training = Training(tmp_path, Adapted())
    training.model.base.eval()
    training.steps(2)
    assert len(set(training.frozen())) == 1
    own = training.home.read(training.saved()[0], "model")
    assert b"running_mean" not in own


def test_unfreezing_and_freezing_is_right_at_each_save(tmp_path):
    training = Training(tmp_path, Adapted())
    training.steps(2)
    training.model.base[2].requires_grad_(True)
    training.steps(2)
    training.model.requires_grad_(True)
    training.steps(1)
    training.model.base.requires_grad_(False)
    training.steps(1)
    a, b, c, d, everything, again = training.frozen()
    assert a == b != c == d
    assert everything != d
    assert again != a


def test_what_changes_without_gradients_is_saved_as_it_is(tmp_path):
    training = Training(tmp_path, Adapted(), eager=True)  # as definitions that touch `.data` are
    for _ in range(4):
        training.model.base[0].weight.data.add_(1)  # a target network perhaps; not even its version counts up
        training.steps(1)
    a, b, c, d = training.frozen()
    assert a != b == c == d


def test_averaged_weights_share_the_base_too(tmp_path):
    training = Training(tmp_path, Adapted(), ema=0.9)
    training.steps(3)
    (digest,) = set(training.frozen())
    assert {part.digest for each in training.saved() if (part := each.part("ema.frozen"))} == {digest}
    inodes = {each.stat().st_ino for each in Path(training.home.where).glob("*/*.frozen.safetensors")}
    assert len(inodes) == 1


def test_a_training_goes_on_from_both_parts_and_shares_the_file_again(tmp_path):
    training = Training(tmp_path, Adapted(), ema=0.9)
    training.steps(3)
    newest = training.saved()[-1]
    other = Training(tmp_path, Adapted(), ema=0.9)
    other.contents.load(newest, Read(other.home, newest))
    other.states, other.now = training.states, 3
    torch.manual_seed(1)
    other.steps(2)
    torch.manual_seed(1)
    training.steps(2, save=False)
    for mine, its in zip(training.model.state_dict().values(), other.model.state_dict().values(), strict=True):
        assert torch.equal(mine, its)
    assert len(set(other.frozen())) == 1
    assert files(other, "model.frozen") == 1


def test_a_few_frozen_bytes_are_no_file_of_their_own(tmp_path):
    model = nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 1))
    model[1].requires_grad_(False)
    training = Training(tmp_path, model)
    training.steps(2)
    assert training.frozen() == [None, None]
