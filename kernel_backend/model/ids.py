"""Define identifiers: experiment `12`, its trial `12.3`, and that trial's second attempt `12.3-2`."""

from __future__ import annotations

import re
from typing import NamedTuple

from kernel_backend.errors import InvalidRequest

_REFERENCE = re.compile(r"#?(\d{1,9})(?:\.(\d{1,9})(?:-(\d{1,9}))?)?")


class AttemptId(NamedTuple):
    """Identifier of an attempt; its text, such as `12.3-2`, is the key of the attempt's gang in engines like Slurm."""

    experiment: int
    trial: int
    number: int

    def __str__(self) -> str:
        return f"{self.experiment}.{self.trial}-{self.number}"


class Reference(NamedTuple):
    """Reference to an experiment as a user types it, optionally with a trial and an attempt."""

    experiment: int
    trial: int | None = None
    attempt: int | None = None


def parse_reference(text: str) -> Reference:
    """Parse `12`, `#12`, `12.3` or `12.3-2`; raises InvalidRequest for any other text."""
    found = _REFERENCE.fullmatch(text.strip())
    if found is None:
        advice = "write a number such as 12, or 12.3 for its third trial"
        raise InvalidRequest(f"{text!r} names no experiment: {advice}")
    return Reference(*(int(part) if part else None for part in found.groups()))  # type: ignore[arg-type]


def parse_attempt(key: str) -> AttemptId:
    """Parse the key of an attempt, such as `12.3-2`; raises InvalidRequest for any other text."""
    reference = parse_reference(key)
    if reference.trial is None or reference.attempt is None:
        raise InvalidRequest(f"{key!r} names no attempt: an attempt's key looks like 12.3-2")
    return AttemptId(reference.experiment, reference.trial, reference.attempt)


def whole(reference: Reference) -> int:
    """Return the number of the experiment in a reference, for a command that acts on whole experiments only.

    The first trial is accepted as well (`12.1` means experiment 12); raises InvalidRequest for any other trial.
    """
    if reference.trial not in (None, 1):
        raise InvalidRequest(f"{reference.experiment}.{reference.trial}: name the experiment, {reference.experiment}")
    return reference.experiment
