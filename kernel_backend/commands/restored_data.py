"""Restore declared data to its state at submission, as far as its bytes still exist, or explain what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_backend.data import Fingerprint, changed_text, fingerprint
from kernel_backend.data.declared import is_url
from kernel_backend.data.views import led, view
from kernel_backend.definition.code import is_code
from kernel_backend.errors import InvalidRequest
from kernel_backend.home import home
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.record import Value
from kernel_backend.model.snapshot import Data, Snapshot

NAMED = 3  # files that a sentence names


class Submitted(NamedTuple):
    """Experiment with its snapshot and the files of the snapshot's archive."""

    experiment: Experiment
    snapshot: Snapshot
    files: dict[str, bytes]


class RestoredData(NamedTuple):
    """Settings by which a training reads its declared data in an earlier state: hyperparameters, `Config.data_at`."""

    params: dict[str, Value]
    data_at: dict[str, str] = {}
    notes: Sequence[str] = ()  # notes on data that has changed but is restored
    beyond: Sequence[str] = ()  # sentences on data that cannot be restored


class _RestoredPlace(NamedTuple):
    """Location of declared data in its state at submission; if that state is lost, of the present data."""

    at: str
    changed: str = ""  # changes that are undone by links to other files
    beyond: str = ""  # why it cannot be restored


def restore_data(a: Submitted, b: Submitted, params: Mapping[str, Value], moved: Sequence[str] = ()) -> RestoredData:
    """Return the settings by which a training of `b` reads the declared data as it was when `a` was submitted.

    Each of `moved` is `NAME=PLACE`, the current location of data. Raises InvalidRequest for a location without data,
    for an undeclared name, and for an object store's URL if no hyperparameter can hold it.
    """
    there = {data.name: data for data in b.snapshot.data}
    moves = _moves(a.snapshot.data, moved)
    seen, data_at, notes, beyond = dict(params), dict[str, str](), list[str](), list[str]()
    for data in a.snapshot.data:
        now, place = there.get(data.name), moves.get(data.name)
        if now is None:
            beyond.append(f"--data {data.name} is not declared by #{b.experiment.number}")
            continue
        before = b.experiment.config.data_at.get(data.name, now.path)
        known = [before, a.experiment.config.data_at.get(data.name), now.path]
        found = _found(data, a.files[data.listed], [place] if place else list(dict.fromkeys(filter(None, known))))
        other = led(now, found.at, b.experiment.cwd, seen, before)
        if other == seen and not now.mapped and found.at != now.path and _within(b, now.path):
            other = None  # no hyperparameter holds the path, and code does not read a link in place of a relative path
        if other is None and place and is_url(place):
            raise InvalidRequest(f"--data {data.name}={place}: no hyperparameter names this data, and a path is no URL")
        if other is None:
            changed = found.changed or found.beyond or f"{data.name} is at {found.at} now"
            beyond.append(f"{changed}; the code itself names the path, which cannot lead elsewhere")
            continue
        seen = other
        if found.at != now.path:
            data_at[data.name] = found.at
        beyond += [found.beyond] if found.beyond else []
        notes += [found.changed] if found.changed else []
    return RestoredData(seen, data_at, notes, beyond)


def _within(b: Submitted, path: str) -> bool:
    """Return whether a code file in the snapshot of `b` contains this path as text."""
    return any(path.encode() in content for name, content in b.files.items() if is_code(name))


def _moves(declared: Sequence[Data], words: Sequence[str]) -> dict[str, str]:
    """Return the current location of declared data by its name (or path), from words such as `leslie=/mnt/leslie`."""
    moves: dict[str, str] = {}
    for word in words:
        found = [(each, name) for each in declared for name in _names(each) if word.startswith(f"{name}=")]
        if not found:
            known = ", ".join(each.into or each.name for each in declared) or "none"
            how = "a rerun takes the new place of the data as --data leslie=/mnt/leslie"
            raise InvalidRequest(f"--data {word}: {how}; declared is: {known}")
        data, name = max(found, key=lambda each: len(each[1]))
        place = word[len(name) + 1 :]
        moves[data.name] = place if is_url(place) else str(Path(place).expanduser().absolute())
    return moves


def _names(data: Data) -> list[str]:
    return [name for name in (data.into, data.into.removeprefix("./"), data.name, data.path) if name]


def _found(then: Data, listed: bytes, places: Sequence[str]) -> _RestoredPlace:
    """Return where the declared data `then` can be read in its original state.

    It is the first of `places` that has this state, else a folder of links to files there that restores it, else the
    first of `places` that exists, with the reason why the state is lost. `listed` is the stored list of the original
    files.
    """
    present: dict[str, Fingerprint] = {}
    for place in places:
        try:
            present[place] = fingerprint(place)
        except InvalidRequest as error:
            if len(places) == 1 and place != then.path:
                raise
            gone = error.message
            continue
        if present[place].digest == then.digest:
            return _RestoredPlace(place)
    for place, found in present.items():
        made = None if is_url(place) else view(then, listed, found, Path(place), home() / "views")
        if made and not made.missing:
            return _RestoredPlace(str(made.place), changed_text(place, listed, found.listed))
    for place, found in present.items():
        return _RestoredPlace(
            place, beyond=f"{changed_text(place, listed, found.listed)}; {_lost(then, listed, place, found)}"
        )
    return _RestoredPlace(then.path, beyond=gone)


def _lost(then: Data, listed: bytes, place: str, found: Fingerprint) -> str:
    if is_url(place):
        return "an object store keeps no earlier objects for us, and tells them apart in its own way"
    missing = view(then, listed, found, Path(place), home() / "views").missing
    names = ", ".join([*missing[:NAMED], *(["..."] if len(missing) > NAMED else [])])
    return f"the bytes of {len(missing):,} of {then.files:,} files are not kept anywhere ({names})"
