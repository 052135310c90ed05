"""Find the training form of a cell or program: a built-in one, or one that another package adds by an entry point.

An entry point in the group `daylight.training_forms` has the form's name and refers to a `TrainingForm`. Packages are
imported only when a new cell has none of the built-in forms that name a framework, or when a job has their form. A
built-in form cannot be replaced, and if two packages use the same name, neither is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from kernel_backend.definition.form import Source, TrainingForm
from kernel_backend.definition.forms.command import COMMAND
from kernel_backend.definition.forms.functions import FUNCTIONS
from kernel_backend.definition.forms.keras import KERAS
from kernel_backend.definition.forms.lightning import LIGHTNING
from kernel_backend.definition.forms.loop import LOOP
from kernel_backend.definition.forms.plain import PLAIN
from kernel_backend.definition.forms.prediction import EVALUATION, PREDICTION
from kernel_backend.definition.forms.script import SCRIPT
from kernel_backend.definition.forms.trainer import TRAINER
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.packages.entry_points import EntryPoints, described, package_of

# In the order in which they are tried, forms of packages between the two. A cell of functions is what no other form
# recognises.
_FIRST, _LAST = (COMMAND, PLAIN, PREDICTION, EVALUATION, LOOP, TRAINER, LIGHTNING, KERAS), (SCRIPT, FUNCTIONS)
BUILT_IN = (*_FIRST, *_LAST)
_BY_NAME: Mapping[str, TrainingForm] = {form.name: form for form in BUILT_IN}

_entries = EntryPoints("daylight.training_forms")
_loaded: dict[str, TrainingForm] = {}


def form_of(source: Source, stored: str | None = None) -> TrainingForm:
    """Return the form of a cell or program: the first that recognises it.

    `stored` is the form that its snapshot names, which it keeps; "" if it has a built-in one. None stands for a new
    cell, which may have the form of a package. Raises InvalidDefinition if the package of a stored form is missing.
    """
    if source.contract < 3:  # the only form that there was
        return FUNCTIONS
    if stored:
        return form_named(stored)
    tried = (form for form in _tried(new=stored is None) if form.programs or source.command is None)
    return next(form for form in tried if form.recognises(source))


def form_named(name: str) -> TrainingForm:
    """Return the training form of this name; raise InvalidDefinition for one whose package is missing or broken."""
    if (found := _BY_NAME.get(name) or _loaded.get(name)) is None:
        found = _loaded[name] = _load(name)
    return found


def problems() -> list[str]:
    """Return an error text for each form of a package that cannot be used, such as one that has a built-in name."""
    said = []
    for name, entries in sorted(_entries.by_name().items()):
        if name in _BY_NAME:
            packages = " and ".join(map(package_of, entries))
            said.append(f"the training form {name} of package {packages} is not used: a built-in form has this name")
        elif (error := _error(name)) is not None:
            said.append(error)
    return said


def _tried(new: bool) -> Iterator[TrainingForm]:
    yield from _FIRST
    if new:
        names = sorted(name for name in _entries.by_name() if name not in _BY_NAME)
        yield from (form_named(name) for name in names if _error(name) is None)
    yield from _LAST


def _error(name: str) -> str | None:
    try:
        form_named(name)
    except InvalidDefinition as error:
        return error.message
    return None


def _load(name: str) -> TrainingForm:
    entries = _entries.by_name().get(name) or _entries.by_name(refresh=True).get(name)
    if not entries:
        raise InvalidDefinition(
            f"this cell has the training form {name} of another package: install that package where the service and "
            "its jobs run"
        )
    packages = " and ".join(map(package_of, entries))
    if len(entries) > 1:
        raise InvalidDefinition(f"{packages} both have a training form {name}: uninstall all but one")
    (entry,) = entries
    wrong = ""
    try:
        found: Any = entry.load()
    except (Exception, SystemExit) as error:
        wrong = f"{entry.value} cannot be imported: {described(error)}"
    else:
        if not isinstance(found, TrainingForm):
            wrong = f"{entry.value} is {type(found).__name__}, not a TrainingForm"
        elif found.name != name:
            wrong = f"{entry.value} is a form named {found.name}"
    if wrong:
        raise InvalidDefinition(
            f"the training form {name} of package {packages} cannot be used: {wrong}; upgrade or uninstall the package"
        )
    form: TrainingForm = dataclasses.replace(found, package=packages)
    return form
