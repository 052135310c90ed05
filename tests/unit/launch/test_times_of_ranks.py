"""Test how a launcher reads the times of its ranks: live parts, the last minute, final values."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.measuring import Measuring
from kernel_backend.launch.times import MINUTE_S, PERIOD_S, TimesReader
from kernel_backend.launch.utilisation.sampler import UseSampler
from kernel_backend.model.launch.times import times_file
from kernel_backend.model.launch.utilisation import DeliveredUse
from kernel_backend.model.reports import Measurements
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.timing.clock import StepClock
from tests.support.builders import share

GARBAGE = array("d", [2.0, 1.0, 0.0, -5.0, *[float("inf")] * 40]).tobytes()


class Machine:
    """Clock of a rank and reader of its launcher, with a time that a test advances."""

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
    assert machine.reader.end()[0].now is None  # it was killed
    assert machine.reader.read()[0].now is None
    assert "data" not in machine.reader.read()[0].whole.parts


def test_times_are_due_every_two_seconds(machine: Machine) -> None:
    machine.train(1.0, steps=4)
    assert machine.reader.due() == ()
    machine.at += PERIOD_S
    assert machine.reader.due()
    machine.reader.delivered()
    assert machine.reader.due() == ()


def test_what_was_measured_by_the_end_is_left_in_the_folder_whatever_was_delivered(machine: Machine) -> None:
    use = UseSampler(share(), [0, 1], dict)
    measuring = Measuring(machine.reader, use)
    machine.train(1.0, steps=4)
    machine.at += PERIOD_S
    period = DeliveredUse(rank=0, number=1)
    use._put([period])
    due = measuring.due()
    assert due.times[0].now == "stall"
    assert due.use == (period,)
    measuring.start()
    left = measuring.finish()  # while the delivery is on its way
    assert ([each.now for each in left.times], left.use) == ([None], (period,))
    machine.folder.write_measured(left)
    AttemptFolder(machine.folder.path, 1).write_measured(Measurements())
    assert sorted(machine.folder.measured(), key=lambda each: len(each.use)) == [Measurements(), left]
    measuring.delivered(due)
    assert measuring.due() == Measurements()


@pytest.mark.parametrize("garbage", [b"", b"x" * 40, b"\xff" * 400, b"\x7f" * 400, GARBAGE])
def test_a_file_that_the_user_has_overwritten_breaks_nothing(machine: Machine, garbage: bytes) -> None:
    (machine.folder.path / times_file(1)).write_bytes(garbage)
    machine.train(2.0, steps=4)
    assert [each.rank for each in machine.reader.read()] == [0]
