"""The data of one experiment for the rerun of another: as far as its files are still there, or why not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kernel_backend.data.declared import fingerprint, is_url
from kernel_backend.data.views import Seen, seen_by, view
from kernel_backend.errors import InvalidRequest
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
    """How the training sees the data of then, and what it cannot see as it was, each in a sentence."""

    seen: Seen
    beyond: tuple[str, ...]


def put_back(a: Submitted, b: Submitted, params: Mapping[str, Value], folder: Path) -> PutBack:
    """Have a training of `b` see the data that `a` declared, by links in `folder`."""
    seen, beyond = Seen(b.experiment.cwd, dict(params)), list[str]()
    there = {data.name: data for data in b.snapshot.data}
    for number, data in enumerate(a.snapshot.data):
        now = there.get(data.name)
        if now is None:
            beyond.append(f"--data {data.name} is not declared by #{b.experiment.number}")
        elif now.digest != data.digest:
            found = _one(a, data, now, seen, folder / f"{number}-{data.digest}")
            if isinstance(found, str):
                beyond.append(found)
            else:
                seen = found
    return PutBack(seen, tuple(beyond))


def _one(a: Submitted, then: Data, now: Data, seen: Seen, folder: Path) -> Seen | str:
    """How it is seen, or why it cannot be."""
    if is_url(now.path):
        return f"{now.name} is in an object store, which keeps no earlier objects for us"
    try:
        made = view(a.files[then.listed], fingerprint(now.path), Path(now.path), folder / "data")
    except InvalidRequest as error:
        return error.message
    if made.missing:
        names = ", ".join([*made.missing[:NAMED], *(["..."] if len(made.missing) > NAMED else [])])
        return f"{now.name}: the bytes of {len(made.missing):,} of {then.files:,} files are not kept anywhere ({names})"
    found = seen_by(now, made, Path(seen.cwd), seen.params, folder / "cwd")
    if found is None:
        return f"{now.name}: the code names this path itself; a hyperparameter or a relative path could lead elsewhere"
    return found
