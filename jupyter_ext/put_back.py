"""Declared data as it was: as far as its bytes are still there, here or where a person says, or why it is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_backend.data import changed_text, fingerprint
from kernel_backend.data.declared import is_url
from kernel_backend.data.views import led, view
from kernel_backend.errors import InvalidRequest
from kernel_backend.home import home
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.record import Value
from kernel_backend.model.snapshot import Data, Snapshot

NAMED = 3  # files in a sentence


class Submitted(NamedTuple):
    """An experiment and its archive's files."""

    experiment: Experiment
    snapshot: Snapshot
    files: dict[str, bytes]


class PutBack(NamedTuple):
    """How a training sees the data of then: by these hyperparameters, and with `Config.data_at`."""

    params: dict[str, Value]
    data_at: dict[str, str] = {}
    notes: Sequence[str] = ()  # what has changed, and is seen as it was all the same
    beyond: Sequence[str] = ()  # what cannot be seen as it was, and why


class _Place(NamedTuple):
    """Where data is as it was; no place: where it has always been."""

    at: str | None = None
    changed: str = ""  # what has changed where it has always been
    beyond: str = ""  # why it is nowhere as it was


def put_back(
    a: Submitted, b: Submitted, params: Mapping[str, Value], moved: Mapping[str, str] | None = None
) -> PutBack:
    """Have a training of `b` see the data that `a` declared, some of it `moved` (name or path of then -> place now).

    Raises InvalidRequest for a place where nothing is, and for a name that was not declared.
    """
    there = {data.name: data for data in b.snapshot.data}
    moves = dict(_moves(a.snapshot.data, moved or {}))
    seen, data_at, notes, beyond = dict(params), dict[str, str](), list[str](), list[str]()
    for data in a.snapshot.data:
        now = there.get(data.name)
        if now is None:
            beyond.append(f"--data {data.name} is not declared by #{b.experiment.number}")
            continue
        found = _place(data, a.files[data.listed], now.path, moves.get(data.name))
        before = b.experiment.config.data_at.get(data.name)  # of a rerun of a rerun
        at = found.at or (before and now.path)
        if at:
            other = led(now, at, b.experiment.cwd, seen, before or now.path)
            if other is None:
                changed = found.changed or f"{data.name} is at {at} now"
                found = found._replace(beyond=f"{changed}; the code itself names the path, which cannot lead elsewhere")
            else:
                seen, data_at[data.name] = other, at
        if found.beyond:
            beyond.append(found.beyond)
        elif found.changed:
            notes.append(found.changed)
    return PutBack(seen, data_at, notes, beyond)


def _moves(declared: Sequence[Data], moved: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, place in moved.items():
        data = next((each for each in declared if name in (each.name, each.path)), None)
        if data is None:
            known = ", ".join(each.name for each in declared) or "none"
            raise InvalidRequest(f"--data {name}={place}: no such data was declared; there is: {known}")
        yield data.name, place if is_url(place) else str(Path(place).expanduser().absolute())


def _place(then: Data, listed: bytes, path: str, moved: str | None) -> _Place:
    """Where data that was at `path` is as it was then; where a person says, whatever is there."""
    try:
        present = fingerprint(moved or path)
    except InvalidRequest as error:
        if moved:
            raise
        return _Place(beyond=error.message)
    if present.digest == then.digest:
        return _Place(at=moved)
    changed = changed_text(moved or path, listed, present.listed)
    if is_url(moved or path):
        return _Place(moved, beyond=f"{changed}; an object store keeps no earlier objects for us")
    folder = home() / "views" / then.digest
    made = view(listed, present, Path(moved or path), folder)
    if not made.missing:
        return _Place(str(made.place), changed)
    names = ", ".join([*made.missing[:NAMED], *(["..."] if len(made.missing) > NAMED else [])])
    kept = f"the bytes of {len(made.missing):,} of {then.files:,} files are not kept anywhere ({names})"
    return _Place(moved, beyond=f"{changed}; {kept}")
