"""Test the clock of a training's parts, and the calls of torch that it times."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from kernel_backend.model.launch import times as file
from kernel_backend.model.launch.times import Clocked, read_times
from kernel_backend.model.times import PARTS, Part
from kernel_backend.runner.ranks.backends import SingleRank
from kernel_backend.runner.ranks.timed import TimedRanks
from kernel_backend.runner.timing.clock import StepClock
from kernel_backend.runner.timing.intercept import install


class Hand:
    """Time source of a clock, which a test advances."""

    def __init__(self) -> None:
        self.at = 100.0
        self.memory = memoryview(bytearray(file.SIZE))
        self.clock = StepClock(lambda: self.at)
        self.clock.attach(self.memory)

    def begun(self) -> StepClock:
        self.clock.phase("first step", 1)
        self.at += 1000.0  # start-up and the first step are no part of the times
        self.clock.phase("step", 2)
        return self.clock

    @property
    def read(self) -> Clocked:
        found = read_times(lambda: bytes(self.memory))
        assert found is not None
        return found

    @property
    def parts(self) -> dict[Part, float]:
        return {part: seconds for part, seconds in zip(PARTS, self.read.until(self.at), strict=True) if seconds}


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_nothing_is_known_before_the_second_step(hand: Hand) -> None:
    hand.clock.phase("first step", 1)
    with hand.clock.part("forward"):
        hand.at += 5.0
    assert read_times(lambda: bytes(hand.memory)) is None


def test_a_part_within_another_interrupts_the_outer_one(hand: Hand) -> None:
    clock = hand.begun()
    with clock.part("backward"):
        hand.at += 2.0
        with clock.part("communication"):
            hand.at += 3.0
        hand.at += 1.0
    hand.at += 0.5
    assert hand.parts == {"backward": 3.0, "communication": 3.0, "stall": 0.5}


def test_a_validation_and_a_checkpoint_are_not_split(hand: Hand) -> None:
    clock = hand.begun()
    with clock.part("validation"):
        hand.at += 1.0
        with clock.part("communication"), clock.part("data"):
            hand.at += 2.0
        hand.at += 1.0
    with clock.part("forward"):
        hand.at += 1.0
    assert hand.parts == {"validation": 4.0, "forward": 1.0}


def test_an_error_within_a_part_ends_it(hand: Hand) -> None:
    clock = hand.begun()
    with contextlib.suppress(ZeroDivisionError), clock.part("checkpoint"), clock.part("forward"):
        hand.at += 1.0
        hand.at += 1 / 0
    with clock.part("data"):
        hand.at += 2.0
    assert hand.parts == {"checkpoint": 1.0, "data": 2.0}


def test_time_outside_of_all_parts_is_that_of_the_phase(hand: Hand) -> None:
    clock = hand.begun()
    clock.between = "forward"
    clock.phase("step", 3)
    hand.at += 1.0
    clock.phase("validation", 3)
    hand.at += 2.0
    clock.phase("waiting", 3)
    hand.at += 4.0
    assert hand.parts == {"forward": 1.0, "validation": 2.0, "stall": 4.0}
    assert hand.read.steps == 2  # the second and the third


def test_the_parts_sum_to_the_wall_time_whatever_happens(hand: Hand) -> None:
    clock = hand.begun()
    begun = hand.at
    draws = torch.randint(0, 4, (300,), generator=torch.Generator().manual_seed(0)).tolist()
    depth = 0
    for number, draw in enumerate(draws):
        hand.at += 0.25
        if draw == 0:
            clock.phase(("step", "validation", "waiting")[number % 3], number)
        elif draw == 1 and depth:
            clock.leave()
            depth -= 1
        else:
            clock.enter(number % len(PARTS))
            depth += 1
    assert sum(hand.parts.values()) == pytest.approx(hand.at - begun)


def test_the_reader_adds_the_time_of_a_part_that_still_runs(hand: Hand) -> None:
    clock = hand.begun()
    clock.enter(PARTS.index("data"))
    hand.at += 30.0  # a loader that hangs
    assert hand.parts == {"data": 30.0}
    clock.leave()
    clock.end()
    hand.at += 1000.0
    assert hand.parts == {"data": 30.0}


def test_a_value_that_is_being_changed_is_not_read(hand: Hand) -> None:
    hand.begun()
    hand.memory.cast("d")[file.SEQUENCE] += 1
    assert read_times(lambda: bytes(hand.memory)) is None
    assert read_times(lambda: b"short") is None


def test_calls_of_other_threads_change_nothing(hand: Hand) -> None:
    clock = hand.begun()
    other = threading.Thread(target=lambda: [clock.enter(3), clock.phase("validation", 9), clock.leave()])
    other.start()
    other.join()
    hand.at += 1.0
    assert hand.parts == {"stall": 1.0}


def test_a_forked_process_does_not_write_to_the_times_of_its_parent(hand: Hand) -> None:
    clock = hand.begun()
    os.register_at_fork(after_in_child=clock.detach)
    child = os.fork()
    if child == 0:
        with clock.part("backward"):
            hand.at += 9.0
        os._exit(0 if "backward" not in hand.parts else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0


def test_a_part_may_decorate_a_function(hand: Hand) -> None:
    clock = hand.begun()

    @clock.part("checkpoint")
    def save(seconds: float) -> float:
        hand.at += seconds
        return seconds

    assert save(2.0) == 2.0
    assert hand.parts == {"checkpoint": 2.0}


def test_waiting_for_an_item_is_timed_and_closing_reaches_the_source(hand: Hand) -> None:
    clock = hand.begun()
    closed: list[bool] = []

    def source() -> Iterator[int]:
        try:
            for number in range(3):
                hand.at += 2.0
                yield number
        finally:
            closed.append(True)

    items = clock.each("data", source())
    assert next(items) == 0
    hand.at += 1.0
    assert next(items) == 1
    items.close()  # type: ignore[attr-defined]
    assert hand.parts == {"data": 4.0, "stall": 1.0}
    assert closed == [True]


# The calls of torch


@pytest.fixture
def timed(hand: Hand) -> Iterator[Hand]:
    undo = install(hand.clock)
    hand.clock.between = "forward"
    hand.begun()
    yield hand
    undo()


class Slow(torch.autograd.Function):
    """Module whose backward pass takes three seconds of the simulated time."""

    hand: Hand

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        Slow.hand.at += 1.0
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        Slow.hand.at += 3.0
        return gradient


class SlowRows(TensorDataset):
    hand: Hand

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        self.hand.at += 2.0
        return super().__getitem__(index)


class SlowSGD(torch.optim.SGD):
    hand: Hand

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.hand.at += 0.5
        super().step(closure)


def test_a_users_own_loop_is_split_by_what_it_calls(timed: Hand) -> None:
    Slow.hand = SlowRows.hand = SlowSGD.hand = timed
    net = nn.Linear(2, 1)
    optimizer = SlowSGD(net.parameters(), lr=0.1)
    for step, (x,) in enumerate(DataLoader(SlowRows(torch.ones(3, 2))), 3):
        timed.clock.phase("step", step)
        loss = Slow.apply(net(x)).sum()  # type: ignore[no-untyped-call]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert timed.parts == {"data": 6.0, "forward": 3.0, "backward": 9.0, "optimizer": 1.5}
    assert (timed.read.steps, timed.read.loader, timed.read.operations) == (3, 3, 6.0)  # counted at the third pass


def test_reading_without_gradients_is_a_validation(timed: Hand) -> None:
    SlowRows.hand = timed
    with torch.no_grad():
        for _ in DataLoader(SlowRows(torch.ones(2, 2))):
            timed.at += 1.0
    for _ in DataLoader(SlowRows(torch.ones(1, 2))):
        timed.at += 0.5
    assert timed.parts == {"validation": 6.0, "data": 2.0, "forward": 0.5}


def test_every_blocking_call_of_the_ranks_is_communication(hand: Hand) -> None:
    clock = hand.begun()

    class Waiting(SingleRank):
        def __getattribute__(self, name: str) -> object:
            found = super().__getattribute__(name)
            if callable(found) and name != "close":
                hand.at += 1.0
            return found

    ranks, tensor = TimedRanks(Waiting(), clock), torch.ones(1)
    clock.rest("forward")
    ranks.allreduce_sum(tensor, "a")
    ranks.all_gather(tensor, "a")
    ranks.all_to_all(tensor, [1], [1], "a")
    ranks.broadcast(tensor)
    assert ranks.broadcast_object(7) == 7
    assert ranks.all_gather_object(7) == [7]
    ranks.barrier()
    assert hand.parts["communication"] == 7.0
    ranks.allreduce_async(tensor, "a").wait()  # the start blocks nobody, and this wait has nothing to wait for
    assert hand.parts["communication"] == 7.0


def test_undoing_gives_torch_its_functions_back(hand: Hand) -> None:
    before = torch.autograd.backward
    undo = install(hand.clock)
    assert torch.autograd.backward is not before
    undo()
    assert torch.autograd.backward is before
