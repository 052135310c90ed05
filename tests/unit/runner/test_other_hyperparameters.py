"""Test trainings that start from a checkpoint with other hyperparameters: they restore its weights and moments."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, RMSprop
from torch.optim import lr_scheduler as s

from kernel_backend.runner.checkpoint.stateful import Optimizer, Schedule

STEPS, MORE = 7, 20

OPTIMIZERS = {
    "sgd": lambda params, lr, decay: SGD(params, lr=lr, momentum=0.9, weight_decay=decay),
    "adam": lambda params, lr, decay: Adam(params, lr=lr, weight_decay=decay),
    "adamw": lambda params, lr, decay: AdamW(params, lr=lr, weight_decay=decay),
}
SCHEDULES = {
    "none": lambda optimizer, lr: None,
    "lambda": lambda optimizer, lr: s.LambdaLR(optimizer, lambda step: 0.9**step),
    "steps": lambda optimizer, lr: s.StepLR(optimizer, 3, gamma=0.5),
    "one cycle": lambda optimizer, lr: s.OneCycleLR(optimizer, max_lr=lr, total_steps=40),
    "cosine": lambda optimizer, lr: s.CosineAnnealingLR(optimizer, 40),
    "warm-up": lambda optimizer, lr: s.SequentialLR(
        optimizer, [s.LinearLR(optimizer, 0.1, total_iters=5), s.CosineAnnealingLR(optimizer, 35)], [5]
    ),
    "chained": lambda optimizer, lr: s.ChainedScheduler(
        [s.LinearLR(optimizer, 0.1, total_iters=5), s.ExponentialLR(optimizer, 0.9)]
    ),
}
EVERY_SCHEDULE = pytest.mark.parametrize("schedule", list(SCHEDULES))


class Trained:
    """Small model with its optimizer and schedule, after some steps."""

    def __init__(self, kind, schedule, lr, decay=0.0, steps=0):
        torch.manual_seed(3)
        self.model = nn.Linear(3, 2)
        self.optimizer = OPTIMIZERS[kind](self.model.parameters(), lr, decay)
        self.schedule = SCHEDULES[schedule](self.optimizer, lr)
        self.step(steps)

    def step(self, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(torch.ones(4, 3)).square().sum().backward()
            self.optimizer.step()
            if self.schedule is not None:
                self.schedule.step()

    def begin_from(self, parent, others=True):
        """Restore a checkpoint like the runner does."""
        self.model.load_state_dict(parent.model.state_dict())
        for kind, mine, its in (
            (Optimizer, self.optimizer, parent.optimizer),
            (Schedule, self.schedule, parent.schedule),
        ):
            if mine is not None:
                part = kind(mine)
                state = copy.deepcopy(kind(its).state_dict())
                (part.take_over if others else part.load_state_dict)(state)
        return self

    def options(self):
        """Return the options of all parameter groups, as numbers."""
        return [{name: value for name, value in group.items() if name != "params"} for group in self.groups]

    @property
    def groups(self):
        return self.optimizer.param_groups

    def moments(self):
        return [
            {name: value.tolist() for name, value in self.optimizer.state[each].items() if value is not None}
            for each in self.model.parameters()
        ]

    def weights(self):
        return [each.tolist() for each in self.model.parameters()]


@pytest.mark.parametrize("kind", list(OPTIMIZERS))
@EVERY_SCHEDULE
def test_options_are_those_of_a_training_of_its_own_and_moments_those_of_the_checkpoint(kind, schedule):
    parent = Trained(kind, schedule, lr=0.1, steps=STEPS)
    child = Trained(kind, schedule, lr=0.03, decay=0.01).begin_from(parent)
    alone = Trained(kind, schedule, lr=0.03, decay=0.01, steps=STEPS)
    assert child.options() == alone.options() != parent.options()
    assert child.moments() == parent.moments() != alone.moments()
    assert child.weights() == parent.weights()
    child.step(MORE)
    alone.step(MORE)
    assert child.options() == alone.options()  # and it goes on from there like any other


@EVERY_SCHEDULE
def test_with_the_same_hyperparameters_it_makes_no_difference(schedule):
    parent = Trained("adam", schedule, lr=0.1, steps=STEPS)
    exactly = Trained("adam", schedule, lr=0.1).begin_from(parent, others=False)
    taken = Trained("adam", schedule, lr=0.1).begin_from(parent)
    for each in (parent, exactly, taken):
        each.step(MORE)
    assert exactly.weights() == parent.weights() == taken.weights()


def test_a_schedule_that_goes_by_a_metric_knows_what_was_best_and_begins_with_its_own_rate():
    plateau = partial(s.ReduceLROnPlateau, factor=0.5, patience=1)
    parent, child = Trained("sgd", "none", lr=0.1), Trained("sgd", "none", lr=0.03)
    parent.schedule, child.schedule = plateau(parent.optimizer), plateau(child.optimizer, factor=0.1)
    for value in (3.0, 1.0, 2.0):
        parent.schedule.step(value)
    child.begin_from(parent)
    assert (child.schedule.best, child.schedule.num_bad_epochs, child.schedule.factor) == (1.0, 1, 0.1)
    assert child.options()[0]["lr"] == 0.03
    child.schedule.step(2.0)
    assert child.options()[0]["lr"] == pytest.approx(0.003)


@pytest.mark.parametrize(
    "own",
    [
        lambda params: Adam(params, lr=0.03),
        lambda params: SGD([{"params": [each]} for each in params], lr=0.03, momentum=0.9),
        lambda params: RMSprop(params, lr=0.03, momentum=0.9),
    ],
    ids=["another kind", "other groups", "more to keep"],
)
def test_an_optimizer_that_has_no_use_for_the_moments_begins_with_none(own):
    parent = Trained("sgd", "none", lr=0.1, steps=STEPS)
    if isinstance(own([torch.zeros(1)]), RMSprop):
        parent.optimizer = RMSprop(parent.model.parameters(), lr=0.1)
        parent.step(STEPS)
    child = Trained("sgd", "none", lr=0.1)
    child.optimizer = own(child.model.parameters())
    child.begin_from(parent)
    assert child.moments() == [{}, {}]
    assert child.options()[0]["lr"] == 0.03
    child.step(MORE)
