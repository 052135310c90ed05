"""Compare settings: hyperparameters, seed, configuration and Daylight's version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from kernel_backend.definition.parse import parse_snapshot
from kernel_backend.differences.side import Side
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.diff import Difference
from kernel_backend.model.experiment import Cadence, Config
from kernel_backend.model.facts import BatchSize
from kernel_backend.model.record import Record
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.model.snapshot import DEFINITION
from kernel_backend.model.trial import parse_beginning
from kernel_backend.model.versions import read

# Options that affect how a training runs and is watched, but not its result.
_HARMLESS = {
    "loader_workers",
    "checkpoint_every",
    "keep",
    "max_restarts",
    "hang_timeout",
    "on_log",
    "until",
    "env",
    "data_at",
    "fetch",
    "least_slots",
}
_BATCH = {"auto_batch", "batch_size"}
_ELSEWHERE = {"seed", "threads"}
_UNSET = object()
LONGEST = 80  # characters of a value that are shown


def hyperparameters(a: Side, b: Side) -> Iterator[Difference]:
    """Yield differences of hyperparameters, including defaults; of a searched one, the domains are compared."""
    before, after = ({**side.experiment.params, **_searched(side.experiment.space)} for side in (a, b))
    for name in {**before, **after}:
        old, new = before.get(name, _UNSET), after.get(name, _UNSET)
        if repr(_meant(a, old)) != repr(_meant(b, new)):
            yield Difference(kind="hyperparameters", name=name, text=f"{name} {_shown(old)} -> {_shown(new)}")


def _searched(space: Space) -> dict[str, Parameter]:
    return {parameter.label: parameter for parameter in space.parameters}


def _meant(side: Side, value: Any) -> Any:
    """Return a hyperparameter's value in the form in which it is compared with the other experiment's.

    If the value is a path within a place from which declared data was read, the declared path replaces that place.
    All other values are unchanged.
    """
    for data in side.snapshot.data:
        place = side.experiment.config.data_at.get(data.name)
        if place and isinstance(value, str) and PurePath(value).is_relative_to(place):
            return str(PurePath(data.path, PurePath(value).relative_to(place)))
    return value


def seed(a: Side, b: Side) -> Iterator[Difference]:
    """Yield a difference if the seeds, from which all randomness comes, are different."""
    before, after = a.experiment.config, b.experiment.config
    if before.seed != after.seed:
        yield Difference(kind="seed", name="seed", text=f"seed {before.seed} -> {after.seed}")


def configuration(a: Side, b: Side) -> Iterator[Difference]:
    """Yield differences of the options that no other function of this module compares.

    Options that affect no result come last, marked as harmless.
    """
    before, after = a.experiment.config, b.experiment.config
    differing = [name for name in Config.model_fields if getattr(before, name) != getattr(after, name)]
    if before.auto_batch is not None or after.auto_batch is not None:
        differing = [name for name in differing if name not in _BATCH]
        old, new = _batch_size(a), _batch_size(b)
        if old != new:
            text = f"batch size {old or 'not found yet'} -> {new or 'not found yet'}"
            yield Difference(kind="configuration", name="batch_size", text=text)
    for name in sorted(set(differing) - _ELSEWHERE, key=lambda name: (name in _HARMLESS, differing.index(name))):
        text = f"{name.replace('_', ' ')} {_shown(getattr(before, name))} -> {_shown(getattr(after, name))}"
        neutral = name in _HARMLESS or (name == "slots" and before.logical_workers and after.logical_workers)
        yield Difference(kind="configuration", name=name, text=text, harmless=bool(neutral))


def _batch_size(side: Side) -> int | None:
    """Return the batch size, given or found by `--batch-size auto`; None if it has not been found yet."""
    if side.experiment.config.auto_batch is None:
        return side.experiment.config.batch_size
    found = side.facts.get("batch")
    return None if found is None else read(BatchSize, found).size


def beginning(a: Side, b: Side) -> Iterator[Difference]:
    """Yield a difference if the trainings start from different checkpoints."""
    before, after = a.experiment.begins_from, b.experiment.begins_from
    if before != after:
        text = f"begins from {before or 'the beginning'} -> {after or 'the beginning'}"
        # A verification resumes from the other experiment's checkpoint, and should reach the same result.
        origin = parse_beginning(after or "")
        own = origin.trial.startswith(f"{a.experiment.number}.") and not origin.part
        yield Difference(kind="configuration", name="begins_from", text=text, harmless=own)


def daylight(a: Side, b: Side) -> Iterator[Difference]:
    """Yield differences of the versions of Daylight's rules that affect seeds, batches and metrics."""
    before, after = a.snapshot, b.snapshot
    if before.numerics != after.numerics:
        text = f"Daylight's numerics {before.numerics} -> {after.numerics}: seeds or sums are made in another way"
        yield Difference(kind="daylight", name="numerics", text=text)
    if before.contract != after.contract:
        text = f"the contract of definitions {before.contract} -> {after.contract}: roles may have other names since 2"
        yield Difference(kind="daylight", name="contract", text=text, harmless=_roles(a) == _roles(b))
    versions = [
        f"{side.version} ({(side.environment.daylight or '')[:12]})".removesuffix(" ()") for side in (before, after)
    ]
    if versions[0] != versions[1]:
        text = f"Daylight {versions[0]} -> {versions[1]}"
        yield Difference(kind="daylight", name="version", text=text, harmless=before.numerics == after.numerics)


def _roles(side: Side) -> str:
    try:
        source = side.files[DEFINITION].decode()
        return parse_snapshot(source, side.snapshot).summary
    except InvalidDefinition as error:
        return error.message


def _shown(value: Any) -> str:
    if value is _UNSET:
        return "unset"
    if value is None:
        return "default"
    if isinstance(value, Parameter):
        text = str(value).removeprefix(f"{value.label}=")
    else:
        text = _words(value) if isinstance(value, Record) else repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _words(record: Record) -> str:
    """Return the fields that are set in a record as text: `10 steps`, `best 1, latest 2`."""
    given = {name: value for name, value in record.to_json().items() if value is not None}
    if isinstance(record, Search):
        given = {"method": record.method, **record.model_dump(exclude_defaults=True)}
    if isinstance(record, Cadence):
        return " ".join(f"{value:g} {name}" for name, value in given.items())
    return ", ".join(f"{name} {value}" for name, value in given.items())
