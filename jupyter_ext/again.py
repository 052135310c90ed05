"""Training an experiment's snapshot again: with whose packages, and what is not as it was (notebook, terminal)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jupyter_ext.capture.secrets import known_secrets
from jupyter_ext.leaks import leaks_on_the_line
from kernel_backend.client import Client
from kernel_backend.data import changed_since
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.diff import Diff, Rerun
from kernel_backend.model.environments import packages
from kernel_backend.model.experiment import Config
from kernel_backend.model.record import Value
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.snapshots.archive import contents
from kernel_backend.snapshots.environment import record

NAMED = 4  # packages, in a sentence


class Planned(NamedTuple):
    """What to ask for, and sentences about what will not be as it was."""

    asked: Rerun
    notes: Sequence[str]


def plan(
    client: Client, number: int, params: Mapping[str, Value], settings: Mapping[str, Any], name: str | None = None
) -> Planned:
    """A rerun of experiment `number` with other hyperparameters and settings (fields of Config) where they are given.

    It runs with this interpreter where its packages are those of then, else with those of the lock; `settings` may
    say otherwise. Raises NotFound, and InvalidRequest for what looks like a secret.
    """
    if told := [each.message for each in leaks_on_the_line({**params, "--name": name}, known_secrets())]:
        raise InvalidRequest("\n".join(told))
    _, snapshot = client.source(number)
    given, notes = dict(settings), list[str]()
    if "epochs" in given:
        given["steps"] = None
    here = record()
    same = here.id == snapshot.environment.id
    if "env" not in given:
        given["env"] = "current" if same else "locked"
    if "env" not in settings and not same:
        found = ", ".join(map(str, packages(snapshot.environment, here)[:NAMED]))
        notes.append(f"the packages here are not those of #{number} ({found}): it trains in the locked environment")
    notes += data_notes(client, number, snapshot)
    asked = Rerun(params=dict(params), config=_plain(given), python=sys.executable, name=name)
    return Planned(asked, notes)


def data_notes(client: Client, number: int, snapshot: Snapshot) -> list[str]:
    """Where declared data is not what it was when experiment `number` was submitted, a sentence each."""
    files = contents(client.archive(number)) if snapshot.data else {}
    said = [changed_since(data, files[data.listed]) for data in snapshot.data]
    return [f"{each}, since #{number}" for each in said if each]


def verdict_text(diff: Diff, verifies: bool = False) -> str:
    """`#97 is a rerun of #41: bit-identical: ...`."""
    what = "verifies" if verifies else "is a rerun of"
    return f"#{diff.b} {what} #{diff.a}: {diff.results.text}"


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of Config as JSON has them."""
    given = Config.model_validate(settings).to_json()
    return {name: given[name] for name in settings}
