"""Describe and compare Python environments of experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kernel_backend.model.record import Record
from kernel_backend.model.snapshot import Environment

_FIRST = ("torch", "numpy", "horovod", "daylight")  # packages that compute come first
_KINDS = ("package", "python", "variable", "machine")

Kind = Literal["package", "python", "variable", "machine"]


class EnvironmentInfo(Record):
    """Answer of `GET /api/experiments/N/environment`: the recorded environment, with its lock and interpreter."""

    id: str
    recorded: Environment
    lock: str | None  # requirements with hashes; None: not locked yet
    locked: int  # number of locked distributions
    unlocked: dict[str, str]  # name -> why it has no hash
    built: str | None  # interpreter of the environment built from the lock; None: not built


class Interpreter(Record):
    """Python interpreter of a training, on the machine where the training starts, and the packages that it lacks."""

    path: str
    lacks: tuple[str, ...] = ()


class Change(Record):
    """Difference between a recorded environment and the present one.

    `recorded` and `present` are the two values, such as versions of a package; None if that environment lacks the item.
    """

    kind: Kind
    name: str
    recorded: str | None
    present: str | None

    def __str__(self) -> str:
        """Format the change for users: `torch 2.12.0 -> 2.13.0`."""
        return f"{self.name} {self.recorded or 'missing'} -> {self.present or 'missing'}"


def changes(recorded: Environment, present: Environment) -> list[Change]:
    """Return the differences between a recorded environment and the present one.

    They are sorted: torch, NumPy, Horovod and Daylight, other packages, Python, environment variables, machine. The git
    commit is not compared: it belongs to the code.
    """
    before, now = _facts(recorded), _facts(present)
    found = [
        Change(kind=kind, name=name, recorded=before.get((kind, name)), present=now.get((kind, name)))
        for kind, name in {**before, **now}
        if before.get((kind, name)) != now.get((kind, name))
    ]
    return sorted(found, key=_rank)


def packages(recorded: Environment, present: Environment) -> list[Change]:
    """Return the differences in packages and Python: those that vanish if the recorded environment is rebuilt here."""
    return [each for each in changes(recorded, present) if each.kind in ("package", "python")]


def _rank(difference: Change) -> tuple[int, int, str]:
    name = difference.name.split()[0]
    first = _FIRST.index(name) if difference.kind == "package" and name in _FIRST else len(_FIRST)
    return first, _KINDS.index(difference.kind), difference.name


def _facts(environment: Environment) -> dict[tuple[Kind, str], str]:
    """Flatten an environment into texts by kind and name, so that two can be compared text by text."""
    tables: list[tuple[Kind, str, Mapping[str, str | None]]] = [
        ("package", "", environment.distributions),
        ("package", " (origin)", environment.origins),
        ("package", " (sources)", {name: _short(digest) for name, digest in environment.editable.items()}),
        ("package", " (sources)", {"daylight": environment.daylight and _short(environment.daylight)}),
        ("package", " (conda)", environment.conda),
        ("package", "", {f"horovod ({flag})": value for flag, value in environment.horovod.items()}),
        ("python", "", {"python": environment.python, "implementation": environment.implementation}),
        ("variable", "", environment.variables),
        ("machine", "", {"platform": environment.platform, "cpu": environment.cpu, "cores": str(environment.cores)}),
        ("machine", "", {"driver": environment.driver}),
    ]
    return {
        (kind, name + what): value for kind, what, table in tables for name, value in table.items() if value is not None
    }


def _short(digest: str) -> str:
    return digest[:12]
