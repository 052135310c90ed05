"""Describe the training form of PyTorch-Ignite: a cell that creates an `Engine` and calls its `run`.

The record needs neither torch nor ignite: kernels and the service import it, too.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.form import Source, TrainingForm
from kernel_backend.definition.script.hyperparameters import constants
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config

RUN = "_daylight_run"  # variable with the engine and its data, instead of the call of `run`


class _Run(NamedTuple):
    """Call of an engine's `run` at the top level of a cell."""

    place: int  # of its statement in the module
    engine: ast.expr
    data: ast.expr
    epochs: int | None


def _run(tree: ast.Module) -> _Run | None:
    """Return the last statement `trainer.run(data, max_epochs=3)` whose `trainer` is an `Engine`; None without one."""
    makers = ("Engine", "create_supervised_trainer")
    engines = {
        each.targets[0].id
        for each in tree.body
        if isinstance(each, ast.Assign)
        and isinstance(each.targets[0], ast.Name)
        and isinstance(each.value, ast.Call)
        and ast.unparse(each.value.func).rpartition(".")[2] in makers
    }
    for place, each in reversed(list(enumerate(tree.body))):
        match each:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name) as engine, "run"), [data], keywords)):
                if name in engines:
                    given = {word.arg: word.value for word in keywords}
                    epochs: Any = getattr(given.get("max_epochs", ast.Constant(1)), "value", None)
                    return _Run(place, engine, data, epochs if type(epochs) is int else None)
    return None


def _recognises(source: Source) -> bool:
    found = _run(source.tree)
    return found is not None and source.tree.body[found.place].lineno >= source.roles_from


def _parse(source: Source) -> Definition:
    found = _run(source.tree)
    assert found is not None
    if found.epochs is None:
        raise InvalidDefinition("max_epochs of run is no number: write one, such as max_epochs=3")
    return Definition(
        form="ignite",
        roles=(),
        functions={},
        hyperparameters=constants(source.tree).parameters,
        settings={"epochs": found.epochs},
        about=f"{ast.unparse(found.engine)}.run (line {source.tree.body[found.place].lineno})",
    )


def _importable(
    tree: ast.Module, roles_from: int, definition: Definition, params: Mapping[str, Any], lengths: Mapping[str, int]
) -> ast.Module:
    """Return the module up to its call of `run`, with the trial's hyperparameters in place of its constants."""
    for name, each in constants(tree).places.items():
        if name in params:
            each.write(params[name])
    found = _run(tree)
    assert found is not None
    last = tree.body[found.place]
    both = ast.Tuple([found.engine, found.data], ast.Load())
    held = ast.copy_location(ast.Assign([ast.Name(RUN, ast.Store())], both), last)
    return ast.fix_missing_locations(ast.Module([*tree.body[: found.place], held], tree.type_ignores))


def _loadable(tree: ast.Module, roles_from: int, definition: Definition) -> ast.Module:
    return _importable(tree, roles_from, definition, {}, {})


def _training_line(tree: ast.Module, module: ast.Module) -> int | None:
    found = _run(tree)
    return None if found is None else tree.body[found.place].lineno


def _one_slot(definition: Definition, config: Config) -> str | None:
    return f"--slots {config.slots}: an engine of ignite trains on one slot" if config.slots > 1 else None


FORM = TrainingForm(
    name="ignite",
    recognises=_recognises,
    parse=_parse,
    training="ignite_form.training:IgniteTraining",
    framework="ignite",
    loop="an engine of ignite takes the steps: leave it out, and write there",
    refuses={"accumulate": "several backward() in the function of a step", "clip": "nn.utils.clip_grad_norm_(...)"},
    rules=(_one_slot,),
    fixed_slots="an engine of ignite trains on one slot",
    advice="return it from the function of a step, by its name {name}",
    importable=_importable,
    loadable=_loadable,
    training_line=_training_line,
    local="Run this cell without the line of the magic: it trains here, by itself",
    script="this cell is a plain program as it stands: leave the magic out to run it here",
)
