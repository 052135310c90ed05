"""Find the variables that a Trainer, or a call of `fit`, has as model and callbacks."""

from __future__ import annotations

import ast


def model_of(call: ast.Call) -> list[str]:
    """Return the variable that a Trainer call gets as its model: `["net"]` for `Trainer(net)` or `fit(model=net)`.

    The list is empty if the model is another expression, as in `Trainer(Net())`.
    """
    given = next((each.value for each in call.keywords if each.arg == "model"), None)
    given = call.args[0] if given is None and call.args else given
    return [given.id] if isinstance(given, ast.Name) else []


def callbacks_of(trainer: ast.Call | None) -> list[str]:
    """Return the variables that a Trainer gets as callbacks: what they record of the training, the job alone has."""
    given = trainer.keywords if trainer is not None else []
    value = next((each.value for each in given if each.arg == "callbacks"), None)
    return [each.id for each in getattr(value, "elts", [value]) if isinstance(each, ast.Name)]
