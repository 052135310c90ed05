"""Events of trials, attempts and experiments. The tables in `states.py` define the transitions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """Base of all events. Boolean fields of an event choose between two target states (`states.Choice`)."""


@dataclass(frozen=True)
class Placed(Event):
    """The gang was granted its slots."""


@dataclass(frozen=True)
class Started(Event):
    """The ranks are connected and start training."""


@dataclass(frozen=True)
class Finished(Event):
    """All ranks completed their work."""


@dataclass(frozen=True)
class Lost(Event):
    """The gang was lost without a fault of the user's code: node, launcher or engine failed."""

    held: bool = False


@dataclass(frozen=True)
class Errored(Event):
    """A rank ended with an exception, a signal or a non-zero exit code."""

    retries_left: bool


@dataclass(frozen=True)
class Invalid(Event):
    """The definition rejected these hyperparameters as invalid."""


@dataclass(frozen=True)
class Release(Event):
    """The gang is asked to commit a checkpoint and release its slots."""


@dataclass(frozen=True)
class Released(Event):
    """The gang has committed a checkpoint and released its slots."""

    held: bool


@dataclass(frozen=True)
class Held(Event):
    """A hold was set on a queued trial, which pauses it."""


@dataclass(frozen=True)
class Lifted(Event):
    """The last hold on the trial was lifted."""


@dataclass(frozen=True)
class Stop(Event):
    """A user asked to stop the trial or experiment for good."""


@dataclass(frozen=True)
class Prune(Event):
    """The search prunes this trial."""


@dataclass(frozen=True)
class Ended(Event):
    """The gang of a stopping trial has ended."""

    pruned: bool = False


@dataclass(frozen=True)
class Extended(Event):
    """A completed trial or experiment is to train longer."""


@dataclass(frozen=True)
class Ending(Event):
    """The ranks of an attempt are exiting."""


@dataclass(frozen=True)
class Paused(Event):
    """The owner paused an experiment."""


@dataclass(frozen=True)
class Resumed(Event):
    """The owner resumed an experiment."""


@dataclass(frozen=True)
class Completed(Event):
    """Every trial of an experiment has ended, and not all by failure."""


@dataclass(frozen=True)
class Failed(Event):
    """Every trial of an experiment has failed."""
