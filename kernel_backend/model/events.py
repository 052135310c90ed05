"""Define events of trials, attempts and experiments. The tables in `states.py` say which transitions they cause."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """Base class of all events.

    If an event has a boolean field, the field chooses between two target states (`states.Choice`).
    """


@dataclass(frozen=True)
class Placed(Event):
    """Event: the gang was granted its slots."""


@dataclass(frozen=True)
class Started(Event):
    """Event: the ranks are connected and start training."""


@dataclass(frozen=True)
class Finished(Event):
    """Event: all ranks completed their work."""


@dataclass(frozen=True)
class Lost(Event):
    """Event: the gang was lost without a fault of the user's code, as a node, launcher or engine failed."""

    held: bool = False


@dataclass(frozen=True)
class Errored(Event):
    """Event: a rank ended with an exception, a signal or a non-zero exit code."""

    retries_left: bool


@dataclass(frozen=True)
class Invalid(Event):
    """Event: the user's training code rejected the trial's hyperparameters as invalid."""


@dataclass(frozen=True)
class Release(Event):
    """Event: the gang is requested to commit a checkpoint and release its slots."""


@dataclass(frozen=True)
class Released(Event):
    """Event: the gang has committed a checkpoint and released its slots."""

    held: bool


@dataclass(frozen=True)
class Held(Event):
    """Event: a hold was set on a queued trial, which pauses it."""


@dataclass(frozen=True)
class Lifted(Event):
    """Event: the last hold on the trial was lifted."""


@dataclass(frozen=True)
class Stop(Event):
    """Event: a user requested that the trial or experiment be stopped for good."""


@dataclass(frozen=True)
class Prune(Event):
    """Event: the search ends this trial early."""


@dataclass(frozen=True)
class Ended(Event):
    """Event: the gang of a stopping trial has ended."""

    pruned: bool = False


@dataclass(frozen=True)
class Extended(Event):
    """Event: a completed trial or experiment is to train longer."""


@dataclass(frozen=True)
class Ending(Event):
    """Event: the ranks of an attempt are exiting."""


@dataclass(frozen=True)
class Paused(Event):
    """Event: the owner paused an experiment."""


@dataclass(frozen=True)
class Resumed(Event):
    """Event: the owner resumed an experiment."""


@dataclass(frozen=True)
class Completed(Event):
    """Event: every trial of an experiment has ended, and not all by failure."""


@dataclass(frozen=True)
class Failed(Event):
    """Event: every trial of an experiment has failed."""
