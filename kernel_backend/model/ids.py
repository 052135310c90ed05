"""Define identifiers: experiment `12`, its trial `12.3`, and that trial's second attempt `12.3-2`; model `memes@3`.

A model's name begins with a letter, so that no text names both an experiment and a model.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kernel_backend.errors import InvalidRequest

_REFERENCE = re.compile(r"#?(\d{1,9})(?:\.(\d{1,9})(?:-(\d{1,9}))?)?")
_WORD = r"[A-Za-z][A-Za-z0-9._-]{0,99}"  # name of a model or of an alias
_MODEL = re.compile(rf"(?:([^/]{{1,255}})/)?({_WORD})(?:@([0-9]{{1,9}}|{_WORD}))?")


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


class ModelReference(NamedTuple):
    """Reference to a registered model or one of its versions, as a user types it.

    `owner` is a user or a group of the hub, "" for the caller; `which` is an alias or the number of a version, "" for
    the newest version.
    """

    owner: str
    name: str
    which: str = ""

    def __str__(self) -> str:
        return (f"{self.owner}/" if self.owner else "") + self.name + (f"@{self.which}" if self.which else "")


def parse_model(text: str) -> ModelReference:
    """Parse `memes`, `memes@production`, `memes@3` or `vision/memes@3`; raises InvalidRequest for any other text.

    Examples
    --------
    >>> parse_model("vision/memes@production")
    ModelReference(owner='vision', name='memes', which='production')
    """
    found = _MODEL.fullmatch(text.strip())
    if found is None:
        raise InvalidRequest(f"{text!r} names no model: write a name such as memes, memes@production or memes@3")
    owner, name, which = found.groups(default="")
    return ModelReference(owner, name, which)


def parse_subject(text: str) -> Reference | ModelReference:
    """Parse what a verb acts on: an experiment or trial, or else a registered model; raises InvalidRequest."""
    return parse_model(text) if _MODEL.fullmatch(text.strip()) else parse_reference(text)


class Source(NamedTuple):
    """Subject with which a training, prediction or evaluation begins, and of a trial the step of a checkpoint.

    `step` is None for the best checkpoint of a trial, and for a model, whose version is one.
    """

    subject: Reference | ModelReference
    step: int | None = None

    def __str__(self) -> str:
        if isinstance(self.subject, ModelReference):
            return str(self.subject)
        trial = "" if self.subject.trial is None else f".{self.subject.trial}"
        return f"{self.subject.experiment}{trial}" + ("" if self.step is None else f"@{self.step}")


def parse_source(text: str) -> Source:
    """Parse an experiment, a trial or a model, and for `12.3@500` the step of the trial's checkpoint.

    Raises InvalidRequest for any other text.

    Examples
    --------
    >>> parse_source("12@500")
    Source(subject=Reference(experiment=12, trial=None, attempt=None), step=500)
    >>> str(parse_source("memes@3"))
    'memes@3'
    """
    named, _, step = text.strip().partition("@")
    if step.isdecimal() and _REFERENCE.fullmatch(named):
        return Source(parse_reference(named), int(step))
    return Source(parse_subject(text))


def parse_alias(text: str) -> str:
    """Return the name of an alias; raises InvalidRequest for a text that is none."""
    if re.fullmatch(_WORD, text) is None:
        raise InvalidRequest(f"{text!r} is no alias: write a word such as production, which begins with a letter")
    return text


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
