"""What can happen to a trial, an attempt and an experiment. `states.py` says where each event leads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """Something that happened; its fields, where it has some, are the guards of the table's choices."""


@dataclass(frozen=True)
class Placed(Event):
    """A gang was granted."""


@dataclass(frozen=True)
class Started(Event):
    """The ranks are wired and train."""


@dataclass(frozen=True)
class Finished(Event):
    """All ranks came to the end of their work."""


@dataclass(frozen=True)
class Lost(Event):
    """The gang is gone through no fault of the user: node, launcher, engine."""

    held: bool = False


@dataclass(frozen=True)
class Errored(Event):
    """A rank ended by its own error, signal or exit code."""

    retries_left: bool


@dataclass(frozen=True)
class Invalid(Event):
    """The definition said that these hyperparameters make no model."""


@dataclass(frozen=True)
class Release(Event):
    """The gang is asked to checkpoint and step aside."""


@dataclass(frozen=True)
class Released(Event):
    """The gang has committed a checkpoint and gone."""

    held: bool


@dataclass(frozen=True)
class Held(Event):
    """A hold was set."""


@dataclass(frozen=True)
class Lifted(Event):
    """The last hold was lifted."""


@dataclass(frozen=True)
class Stop(Event):
    """Someone wants it ended for good."""


@dataclass(frozen=True)
class Prune(Event):
    """The search gives this trial up."""


@dataclass(frozen=True)
class Ended(Event):
    """The gang of a stopping trial is gone."""

    pruned: bool = False


@dataclass(frozen=True)
class Extended(Event):
    """A completed trial or experiment gets more to do."""


@dataclass(frozen=True)
class Ending(Event):
    """The ranks of an attempt are on their way out."""


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
