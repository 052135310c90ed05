"""Training an experiment's snapshot again: with whose packages, and what is not as it was (notebook, terminal)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kernel_backend.client import Client
from kernel_backend.model.diff import Diff, Rerun
from kernel_backend.model.experiment import Config
from kernel_backend.model.record import Value
from kernel_backend.snapshots.environment import record


class Planned(NamedTuple):
    """What to ask for, and sentences about what will not be as it was."""

    asked: Rerun
    notes: Sequence[str]


def plan(
    client: Client, number: int, params: Mapping[str, Value], settings: Mapping[str, Any], name: str | None = None
) -> Planned:
    """A rerun of experiment `number` with other hyperparameters and settings (fields of Config) where they are given.

    It runs with this interpreter where its packages are those of then, else with those of the lock; `settings` may
    say otherwise. Raises NotFound.
    """
    _, snapshot = client.source(number)
    given, notes = dict(settings), list[str]()
    if "epochs" in given:
        given["steps"] = None
    same = record().id == snapshot.environment.id
    if "env" not in given:
        given["env"] = "current" if same else "locked"
    if not same and given["env"] == "current":
        notes.append(f"the packages here are not those of #{number}: daylight diff tells which, once it has begun")
    asked = Rerun(params=dict(params), config=_plain(given), python=sys.executable, name=name)
    return Planned(asked, notes)


def verdict(client: Client, number: int) -> Diff | None:
    """An experiment beside the one that it is a rerun of; None where it is none's."""
    origin = client.experiment(number).experiment.rerun_of
    return None if origin is None else client.diff(origin, number)


def verdict_text(diff: Diff, verifies: bool = False) -> str:
    """`#97 is a rerun of #41: bit-identical: ...`."""
    what = "verifies" if verifies else "is a rerun of"
    return f"#{diff.b} {what} #{diff.a}: {diff.results.text}"


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of Config as JSON has them."""
    given = Config.model_validate(settings).to_json()
    return {name: given[name] for name in settings}
