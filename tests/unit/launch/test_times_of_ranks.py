"""Test how a launcher reads the times of its ranks: live parts, the last minute, final values."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.times import MINUTE_S, PERIOD_S, TimesReader
from kernel_backend.model.launch.times import times_file
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.timing.clock import StepClock

GARBAGE = array("d", [2.0, 1.0, 0.0, -5.0, *[float("inf")] * 40]).tobytes()


class Machine:
    """A clock of a rank and the reader of its launcher, at one time that a test moves."""

    def __init__(self, path: Path) -> None:
        self.at, self.step = 50.0, 1
        self.folder = AttemptFolder(path)
        self.clock = StepClock(lambda: self.at)
        self.clock.attach(Progress(path, 0).times())
        self.reader = TimesReader(self.folder, {0: "n1", 1: "n1"}, lambda: self.at)

    def train(self, seconds: float, steps: int = 1, part: str = "forward") -> None:
        for _ in range(steps):
            self.step += 1
            self.clock.phase("step", self.step)
            with self.clock.part(part):  # type: ignore[arg-type]
                self.at += seconds / steps


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_ranks_that_have_taken_no_second_step_are_left_out(machine: Machine) -> None:
    assert machine.reader.read() == ()
    machine.train(2.0, steps=4)
    (only,) = machine.reader.read()
    assert (only.rank, only.node, only.whole.parts, only.whole.steps) == (0, "n1", {"forward": 2.0}, 3)


def test_the_last_minute_is_what_was_added_in_it(machine: Machine) -> None:
    machine.train(30.0, steps=30, part="data")
    assert machine.reader.read()[0].minute == machine.reader.read()[0].whole
    for _ in range(40):
        machine.train(2.0, steps=2)
        newest = machine.reader.read()[0]
    assert newest.minute.parts == {"forward": MINUTE_S}
    assert newest.minute.steps == 60
    assert newest.whole.parts == {"data": 30.0, "forward": 80.0}


def test_a_part_that_does_not_end_grows_while_its_rank_lives(machine: Machine) -> None:
    machine.train(2.0, steps=4)
    machine.clock.enter(0)
    machine.at += 20.0
    assert machine.reader.read()[0].now == "data"
    assert machine.reader.read()[0].whole.parts["data"] == 20.0
    machine.reader.end()  # it was killed
    assert machine.reader.read()[0].now is None
    assert "data" not in machine.reader.read()[0].whole.parts


def test_times_are_due_every_two_seconds_and_once_after_the_end(machine: Machine) -> None:
    machine.train(1.0, steps=4)
    assert machine.reader.due() == ()
    machine.at += PERIOD_S
    assert machine.reader.due()
    machine.reader.delivered()
    assert machine.reader.due() == ()
    machine.reader.end()
    assert machine.reader.final()
    assert machine.reader.due()
    machine.reader.delivered()
    assert not machine.reader.final()


def test_final_times_are_due_if_the_ranks_end_during_a_delivery(machine: Machine) -> None:
    machine.train(1.0, steps=4)
    machine.at += PERIOD_S
    assert machine.reader.due()
    machine.reader.end()
    machine.reader.delivered()
    assert machine.reader.final()


def test_without_times_nothing_is_waited_for_at_the_end(machine: Machine) -> None:
    machine.reader.end()
    assert not machine.reader.final()


@pytest.mark.parametrize("garbage", [b"", b"x" * 40, b"\xff" * 400, b"\x7f" * 400, GARBAGE])
def test_a_file_that_the_user_has_overwritten_breaks_nothing(machine: Machine, garbage: bytes) -> None:
    (machine.folder.path / times_file(1)).write_bytes(garbage)
    machine.train(2.0, steps=4)
    assert [each.rank for each in machine.reader.read()] == [0]
