"""Experiment `b` beside experiment `a`: every class of causes in the order of likeliness, then what came of it."""

from __future__ import annotations

from kernel_backend.differences.code import code
from kernel_backend.differences.data import data, pretrained
from kernel_backend.differences.environment import environment, hardware
from kernel_backend.differences.results import results
from kernel_backend.differences.settings import configuration, daylight, hyperparameters, seed
from kernel_backend.differences.side import Side
from kernel_backend.model.diff import Diff, Difference

_CLASSES = (code, hyperparameters, data, pretrained, environment, seed, hardware, configuration, daylight)
# What was delivered and the model at step 0 mostly follow from one of the others.
_FOLLOWS = ("delivered", "step 0")


def diff(a: Side, b: Side) -> Diff:
    """What differs, the likeliest cause first; what changes no bit is last. Silent where nothing does."""
    return Diff(a=a.experiment.number, b=b.experiment.number, differences=causes(a, b), results=results(a, b))


def causes(a: Side, b: Side) -> tuple[Difference, ...]:
    """The differences without the results."""
    found = [difference for each in _CLASSES for difference in each(a, b)]
    return tuple(sorted(found, key=lambda each: (each.harmless, each.name in _FOLLOWS)))
