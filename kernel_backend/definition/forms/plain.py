"""Describe the form plain: a cell that runs once as it is, in one process (`%%dlrun`)."""

from __future__ import annotations

import ast

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.form import Source, TrainingForm
from kernel_backend.definition.plain import above, brought_back, is_plain, split

# Settings that do not apply to a plain cell: those of a training loop, several slots, or trials.
_NOT_PLAIN = (
    "accumulate", "amp", "await_evaluation", "batch_size", "clip", "compile", "ema", "gather_loss", "logical_workers",
    "patience",
    "per_slot_batch", "schedule_per", "search", "slots", "steps", "strategy", "sync_bn", "until",
    "validate_every", "validate_first", "weights_from",
)  # fmt: skip

_ABOUT = "the cell as it is, in one process"


def _recognises(source: Source) -> bool:
    return is_plain(source.tree)


def _parse(source: Source) -> Definition:
    """Return the definition of a plain cell, which is never restarted, as it would run again from its beginning."""
    settings = {"form": "plain", "epochs": 1, "max_restarts": 0}
    return Definition(form="plain", roles=(), functions={}, hyperparameters={}, settings=settings, about=_ABOUT)


def _loadable(tree: ast.Module, roles_from: int, definition: Definition) -> ast.Module:
    return above(tree, roles_from)


def _gives(tree: ast.Module, roles_from: int, definition: Definition) -> list[str]:
    return brought_back(tree, roles_from)


PLAIN = TrainingForm(
    name="plain",
    recognises=_recognises,
    parse=_parse,
    training="kernel_backend.runner.forms.plain:PlainTraining",
    loop="%%dlrun runs a cell once, in one process: leave it out. For several slots or trials write",
    refuses=dict.fromkeys(_NOT_PLAIN, "functions below %%dlsubmit"),
    deferred=split,
    loadable=_loadable,
    gives=_gives,
    local="Run this cell without the line of the magic: it trains here, by itself",
    script="this cell is a plain program as it stands: leave the magic out to run it here",
)
