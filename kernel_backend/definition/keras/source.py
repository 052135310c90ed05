"""Rewrite a cell with a call of Keras' `fit` so that importing it records that call instead of training."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernel_backend.definition.keras.calls import FIT
from kernel_backend.definition.keras.fit import compiled_models, fits, keras_fit, write_values
from kernel_backend.model.record import Value

_CALLS = "_daylight_calls"


def importable(
    tree: ast.Module, roles_from: int, params: Mapping[str, Value], lengths: Mapping[str, int]
) -> ast.Module:
    """Return the module up to its call of `fit`, which is recorded instead of made.

    Hyperparameters `params`, and `lengths` (`epochs` and `batch_size`), replace constants of the cell. A cell of
    functions is returned unchanged. Line numbers do not change.
    """
    fit = keras_fit(tree, roles_from)
    if fit is None:
        return tree
    write_values(tree, fit, params, lengths)
    recorded = ast.parse(f"import kernel_backend.definition.keras.calls as {_CALLS}\n{FIT} = {_CALLS}.fit()").body
    for each in recorded:
        for node in ast.walk(each):
            ast.copy_location(node, fit.call)
    assert isinstance(recorded[1], ast.Assign)
    assert isinstance(recorded[1].value, ast.Call)
    recorded[1].value.args = [ast.copy_location(ast.Name(fit.model, ast.Load()), fit.call), *fit.call.args]
    recorded[1].value.keywords = fit.call.keywords
    return ast.fix_missing_locations(ast.Module([*fit.above, *recorded], tree.type_ignores))


def training_line(tree: ast.Module, module: ast.Module) -> int | None:
    """Return the line of a cell from which on its notebook runs nothing: that of its `fit` call; None without one.

    `module` is the captured module with the cell: the model may have been compiled in an earlier cell.
    """
    models = compiled_models(module)
    return next((each.lineno for each in tree.body if any(fits(each, models))), None)
