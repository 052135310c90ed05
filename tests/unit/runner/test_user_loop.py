"""Test that a user's own loop resumes at every step after which a checkpoint may have been saved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from kernel_backend.artifacts.run import Run
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config
from kernel_backend.runner.external_loop.local import PrintedTraining
from kernel_backend.runner.external_loop.reports import PendingReports, merged
from kernel_backend.runner.external_loop.run_methods import RunMethods
from kernel_backend.runner.external_loop.training import LoopPosition
from kernel_backend.runner.external_loop.user_loop import LoopSettings

DATA = TensorDataset(torch.arange(10))
OTHER = TensorDataset(torch.arange(100, 107))


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


class Saving(PrintedTraining):
    """Training that saves its position at each boundary, as JSON."""

    def __init__(self, position: LoopPosition, taken: list[Any]) -> None:
        super().__init__()
        self.position, self.taken = position, taken
        self.saved: list[tuple[LoopPosition, int]] = []

    def end_step(self, last: bool = False) -> None:
        super().end_step(last)
        self._save()

    def end_epoch(self, last: bool = False) -> None:
        super().end_epoch(last)
        self._save()

    def _save(self) -> None:
        form = json.loads(json.dumps(self.form_state()))
        self.saved.append((LoopPosition(self.position.step, self.position.epoch, 0.0, form), len(self.taken)))


def trained(loop: Callable[[Any, list[Any]], None], position: LoopPosition, **config: Any) -> tuple[list[Any], Saving]:
    """Run a loop from this position; return the items that it processed, and its training."""
    taken: list[Any] = []
    training = Saving(position, taken)
    settings = LoopSettings(Config(**config), 0, 1, torch.device("cpu"), note=print)
    methods, run = RunMethods(training, settings, {}), Run()
    run.attach(methods)
    try:
        loop(run, taken)
    finally:
        methods.loop.close()
    return taken, training


def nested(run: Any, taken: list[Any]) -> None:
    for epoch in run.epochs(3):
        for (x,) in run.loader(DATA, 4):
            taken.append((epoch, x.tolist()))
        for (x,) in run.loader(DATA, 4, validation=True):
            taken.append(("validated", x.tolist()) if epoch == 9 else (epoch, "v"))
        taken[:] = [each for each in taken if each[1] != "v"]


def two_loaders(run: Any, taken: list[Any]) -> None:
    for epoch in run.epochs(2):
        for (x,) in run.loader(DATA, 4):
            taken.append((epoch, x.tolist()))
        for (x,) in run.loader(OTHER, 4):
            taken.append((epoch, x.tolist()))


def together(run: Any, taken: list[Any]) -> None:
    for epoch in run.epochs(2):
        for (x,), (y,) in zip(run.loader(DATA, 4), run.loader(OTHER, 4), strict=False):
            taken.append((epoch, x.tolist(), y.tolist()))


def alone(run: Any, taken: list[Any]) -> None:
    for (x,) in run.loader(DATA, 4):
        taken.append(x.tolist())


def steps_with_data(run: Any, taken: list[Any]) -> None:
    batches = iter(run.loader(DATA, 4, repeat=True))
    for step in run.steps(9):
        task = [x.tolist() for (x,) in run.loader(OTHER, 4)]
        taken.append((step, next(batches)[0].tolist(), task))


def steps_in_epochs(run: Any, taken: list[Any]) -> None:
    for epoch in run.epochs(3):
        taken.extend((epoch, step) for step in run.steps(2))


def whole_epochs(run: Any, taken: list[Any]) -> None:
    taken.extend(run.epochs(4))


def phases(run: Any, taken: list[Any]) -> None:
    taken.extend(("first", step) for step in run.steps(3))
    for (x,) in run.loader(DATA, 4):
        taken.append(("second", x.tolist()))


def left_early(run: Any, taken: list[Any]) -> None:
    for epoch in run.epochs(2):
        for number, (x,) in enumerate(run.loader(DATA, 4)):
            taken.append((epoch, x.tolist()))
            if number == 1:
                break
        taken.extend((epoch, step) for step in run.steps(2))


def stream(run: Any, taken: list[Any]) -> None:
    for epoch in run.epochs(2):
        taken.extend((epoch, x.tolist()) for x in run.loader(Stream(), 4))


LOOPS = [
    nested, two_loaders, together, alone, steps_with_data, steps_in_epochs, whole_epochs, phases, left_early, stream
]  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_from_every_boundary_a_loop_takes_what_was_left(loop):
    # `left_early` counts its batches itself, so only what follows can go on in the middle.
    whole, training = trained(loop, LoopPosition(), epochs=2)
    assert len(training.saved) >= 4
    for position, before in training.saved:
        if loop is left_early and before % 4 == 1:
            continue
        after, again = trained(loop, position, epochs=2)
        assert after == whole[before:], (position, before)
        assert again.position.step == training.position.step
        assert again.position.epoch == training.position.epoch


def test_each_pass_has_an_order_of_its_own_with_every_sample_once():
    taken, training = trained(nested, LoopPosition())
    orders = [[each for epoch, x in taken if epoch == number for each in x] for number in range(3)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    assert (training.position.step, training.position.epoch) == (9, 3)


def test_a_loader_alone_makes_all_epochs_and_ends_after_all_steps():
    taken, training = trained(alone, LoopPosition(), epochs=3)
    assert (len(taken), training.position.epoch) == (9, 3)
    assert len(trained(alone, LoopPosition(), epochs=1)[0]) == 3


def test_what_a_data_loader_says_is_taken():
    def in_order(run: Any, taken: list[Any]) -> None:
        for (x,) in run.loader(DataLoader(DATA, batch_size=5)):
            taken.append(x.tolist())

    assert trained(in_order, LoopPosition())[0] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert len(trained(alone, LoopPosition(), uneven="drop")[0]) == 2


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        (lambda run, taken: [alone(run, taken) for _ in range(2)], "begins a second time outside of run.epochs()"),
        (lambda run, taken: [list(run.epochs(1)) for _ in run.epochs(2)], "within another iteration of run"),
        (lambda run, taken: list(run.steps()), "write run.steps(1000), or give --steps 1000"),
        (lambda run, taken: run.loader({"x": 1}), "run.loader() was given a dict"),
    ],
)
def test_a_loop_that_could_not_restart_is_refused(loop, said):
    with pytest.raises(InvalidDefinition, match=said.replace("(", r"\(").replace(")", r"\)")):
        trained(loop, LoopPosition())


class Weighing(PrintedTraining):
    """Training that keeps what its rank reports, as `ExternalTraining` does."""

    def __init__(self) -> None:
        super().__init__()
        self.reports = PendingReports()
        self._own = 1.0

    def begin_step(self, samples: tuple[int, int] | None = None) -> None:
        super().begin_step(samples)
        self._own = 1.0 if samples is None else float(samples[0])

    def abandon_step(self) -> None:
        super().abandon_step()
        self._own = 1.0

    def report(self, kind: Any, values: Any, step: int | None = None, weight: float | None = None) -> None:
        self.reports.add(kind, self.position.step + self.in_step, 0.0, values, self._own if weight is None else weight)


def means(run: Any) -> None:
    for _ in run.epochs(1):
        total = count = 0
        for (x,) in run.loader(DATA, 5, shuffle=False):
            run.report(step_mean=x.double().mean())
            total, count = total + int(x.sum()), count + len(x)
        run.report(epoch_mean=total / count)
        for name, size in (("of fives", 5), ("of ones", 1)):
            total = count = 0
            for (x,) in run.loader(OTHER, size, validation=True):
                total, count = total + int(x.sum()), count + len(x)
            run.report({name: total / count}, validation=True)
        of_sevens = run.loader(TensorDataset(torch.full((8,), 7.0)), 7, validation=True)
        run.report(of_batches=sum(float(x.mean()) for (x,) in of_sevens) / len(of_sevens), validation=True)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_means_that_ranks_report_of_unequal_shares_are_those_of_all_samples(world: int) -> None:
    ranks = []
    for rank in range(world):
        training, run = Weighing(), Run()
        methods = RunMethods(training, LoopSettings(Config(), rank, world, torch.device("cpu"), print), {})
        run.attach(methods)
        means(run)
        methods.loop.close()
        ranks.append(training.reports.take())
    assert {(each.kind, each.step): each.metrics for each in merged(ranks)} == {
        ("training", 1): {"step_mean": 2.0},
        ("training", 2): pytest.approx({"step_mean": 7.0, "epoch_mean": 4.5}),
        ("validation", 2): pytest.approx({"of fives": 103.0, "of ones": 103.0, "of_batches": 7.0}),
    }
