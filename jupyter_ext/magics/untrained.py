"""Tell the user what a job alone sets or trains, while the notebook's values of these names stay as they are."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.model.values import listed

_LISTED = 6  # names that a note lists
_LOADED = 2  # modules for which a note shows how to load them


class LeftBehind:
    """Modules of the notebook that an experiment trains, and that have not changed in the notebook since."""

    def __init__(self) -> None:
        self._modules: dict[str, _Left] = {}

    def add(self, names: Iterable[str], definition: Definition, held: Mapping[str, Any], number: int) -> None:
        """Add those modules of the notebook among `names` that experiment `number` trains."""
        for name in trained_modules(names, held):
            load = (
                f'daylight.job({number}).load("{name}")'
                if form_named(definition.form).whole
                else f"daylight.job({number}).load()"
            )
            self._modules[name] = _Left(number, load, weakref.ref(held[name]), _version(held[name]))

    def within(self, names: Iterable[str], held: Mapping[str, Any]) -> Iterator[str]:
        """Yield a note for each of the names whose module is still without what an experiment has trained."""
        for name in names:
            left = self._modules.get(name)
            if left is not None and left.module() is held.get(name) and _version(held[name]) == left.version:
                yield (
                    f"{name} begins without what #{left.number} trains: to go on from there, run {name} = {left.load} "
                    "in a cell before this one"
                )


class _Left(NamedTuple):
    number: int  # of the experiment
    load: str  # call that loads what it has trained
    module: weakref.ref[Any]
    version: int  # of the module's weights when the experiment was submitted


def _version(module: Any) -> int:
    """Return a number that grows with each change of a module's weights in place."""
    torch = sys.modules["torch"]
    return sum(int(each._version) for each in torch.nn.Module.parameters(module))


def untrained_note(
    names: Sequence[str], definition: Definition, held: Mapping[str, Any], job: str = "job"
) -> str | None:
    """Return a note on `names`, which a job alone sets or trains; None without any.

    `held` are the notebook's variables, and `job` is how the notebook gets at the job: a variable, or a call such as
    `daylight.job(12)`.
    """
    old = [each for each in names if each in held]
    unset = [each for each in names if each not in held]
    parts = []
    if old:
        stay = "stay as they were" if len(old) > 1 else "stays as it was"
        parts.append(f"the notebook's {_named(old)} {stay}")
    if unset:
        where = "there" if old else "in the notebook"
        parts.append(f"{_named(unset)} {'are' if len(unset) > 1 else 'is'} not set {where}")
    if not parts:
        return None
    said, loads = ", and ".join(parts), _loads(names, definition, held, job)
    if not loads:
        return said
    given = "gives the trained model" if len(loads) == 1 else "give the trained models"
    first = " after import daylight" if job.startswith("daylight.") and "daylight" not in held else ""
    return f"{said}: {_named(loads, _LOADED)} {given}{first}"


def _named(names: Sequence[str], most: int = _LISTED) -> str:
    if len(names) > most:
        return listed(names, most)
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _loads(names: Sequence[str], definition: Definition, held: Mapping[str, Any], job: str) -> list[str]:
    """Return the calls that load what the job has trained; none where a loop trains only tensors."""
    if not form_named(definition.form).whole:
        return [f"{job}.load()"]
    torch, values = sys.modules.get("torch"), [held.get(name) for name in names]
    tensors = torch is not None and any(isinstance(each, torch.Tensor) and each.requires_grad for each in values)
    modules = trained_modules(names, held)
    return [f'{job}.load("{name}")' for name in modules] or ([] if tensors else [f"{job}.load()"])


def trained_modules(names: Iterable[str], held: Mapping[str, Any]) -> list[str]:
    """Return those of the names that hold a torch module of the notebook with weights to be trained, each module once.

    A checkpoint has a module under one name only.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    found: dict[int, str] = {}
    for name in names:
        value = held.get(name)
        if isinstance(value, torch.nn.Module) and any(each.requires_grad for each in value.parameters()):
            found.setdefault(id(value), name)
    return list(found.values())
