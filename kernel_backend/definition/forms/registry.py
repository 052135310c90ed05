"""Find the training form of a cell or program, and forms by name."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_backend.definition.form import Source, TrainingForm
from kernel_backend.definition.forms.command import COMMAND
from kernel_backend.definition.forms.functions import FUNCTIONS
from kernel_backend.definition.forms.keras import KERAS
from kernel_backend.definition.forms.lightning import LIGHTNING
from kernel_backend.definition.forms.loop import LOOP
from kernel_backend.definition.forms.plain import PLAIN
from kernel_backend.definition.forms.script import SCRIPT
from kernel_backend.definition.forms.trainer import TRAINER

# In the order in which they are tried. A cell of functions is what no other form recognises.
BUILT_IN = (COMMAND, PLAIN, LOOP, TRAINER, LIGHTNING, KERAS, SCRIPT, FUNCTIONS)
_BY_NAME: Mapping[str, TrainingForm] = {form.name: form for form in BUILT_IN}


def form_of(source: Source) -> TrainingForm:
    """Return the form of a cell or program: the first that recognises it."""
    if source.contract < 3:  # the only form that there was
        return FUNCTIONS
    tried = (form for form in BUILT_IN if form.programs or source.command is None)
    return next(form for form in tried if form.recognises(source))


def form_named(name: str) -> TrainingForm:
    """Return the training form of this name."""
    return _BY_NAME[name]
