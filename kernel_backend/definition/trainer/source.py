"""Rewrite a cell with a Trainer so that importing it creates the Trainer without training."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_backend.definition.hugging_face import classes, is_made
from kernel_backend.definition.trainer.cell import held_trainers, statement_trains, statements, trainer_cell

FOUND = "_daylight_trainer"  # the variable of the module that holds the Trainer
MODEL = "_daylight_model"  # the variable that holds the Trainer's model, if only the model is created
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def importable(tree: ast.Module, roles_from: int, values: Mapping[str, Any]) -> ast.Module:
    """Return the module up to its call of `train`; `values` replace hyperparameters in its TrainingArguments.

    Line numbers do not change.
    """
    cell = trainer_cell(tree, roles_from)
    body = statements(tree.body)
    if cell.train is not None:
        body = body[: body.index(cell.train)]
    kept = [each for each in cell.arguments.keywords if each.arg not in values]
    new = [ast.keyword(name, ast.Constant(value)) for name, value in values.items()]
    cell.arguments.keywords = [*kept, *new]
    last = ast.Assign([ast.Name(FOUND, ast.Store())], ast.Name(cell.name, ast.Load()))
    ast.copy_location(last, body[-1])
    return ast.fix_missing_locations(ast.Module([*body, last], tree.type_ignores))


def model_only(tree: ast.Module, roles_from: int) -> ast.Module:
    """Return only the statements that create the Trainer's model, with a last one that assigns it to `MODEL`.

    Definitions are included, and statements that bind or change variables on which the model depends; others, such as
    those that read the data, are not.
    """
    cell = trainer_cell(tree, roles_from)
    body = statements(tree.body)
    given = next((each.value for each in cell.trainer.keywords if each.arg == "model"), None)
    given = given or (cell.trainer.args[0] if cell.trainer.args else None)
    if given is None:  # model_init
        made = next(each.value for each in cell.trainer.keywords if each.arg == "model_init")
        given = ast.Call(made, [], [])
    place = next(n for n, each in enumerate(body) if any(node is cell.trainer for node in ast.walk(each)))
    kept = _needed(body[:place], _names(given))
    last = ast.Assign([ast.Name(MODEL, ast.Store())], given)
    ast.copy_location(last, body[place])
    return ast.fix_missing_locations(ast.Module([*kept, last], tree.type_ignores))


def defined_only(source: str, module: ast.Module) -> str:
    """Return a cell's source up to the statement that creates its Trainer or trains, without that statement.

    A notebook runs this in place of the cell when a job does the training. `module` is the captured module, in which
    earlier cells may import or derive the Trainer's class, or create the Trainer.
    """
    return _source(_parts(source, module)[0])


def makes_trainer(source: str, module: ast.Module) -> str:
    """Return a cell's statements from the one that creates its Trainer up to the one that trains; "" without any.

    A notebook runs these once the job has trained, to have a Trainer with the job's results.
    """
    return _source(_parts(source, module)[1])


def _source(body: list[ast.stmt]) -> str:
    return ast.unparse(ast.Module(body, []))


def _parts(source: str, module: ast.Module) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the statements before the one that creates the Trainer or trains, and from there up to the training."""
    trainers, held = classes(module), held_trainers(module)
    before: list[ast.stmt] = []
    making: list[ast.stmt] = []
    for each in statements(ast.parse(source).body):
        if statement_trains(each, held):
            break
        makes = not isinstance(each, _DEFINING) and any(is_made(node, trainers) for node in ast.walk(each))
        (making if making or makes else before).append(each)
    return before, making


def training_line(tree: ast.Module, module: ast.Module) -> int | None:
    """Return the first line of a cell that its notebook must not run: that of its `train` call; None without one.

    `module` is the captured module with the cell.
    """
    held = held_trainers(module)
    for each in tree.body:
        inner = statements([each])
        train = next((place for place, own in enumerate(inner) if statement_trains(own, held)), None)
        if train is not None:  # `if __name__ == "__main__":` must not be left without a statement
            return inner[train].lineno if train else each.lineno
    return None


def _needed(body: Sequence[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """Return the definitions of a module, and the statements that bind or change these names, in source order."""
    kept = {number for number, each in enumerate(body) if isinstance(each, _DEFINING)}
    for number in kept:
        names |= _names(body[number])
    grown = True
    while grown:
        grown = False
        for number, each in enumerate(body):
            if number not in kept and _changed(each) & names:
                kept.add(number)
                names |= _names(each)
                grown = True
    return [each for number, each in enumerate(body) if number in kept]


def _changed(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds, or whose objects it may change: `net.resize(...)` changes `net`."""
    found = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(statement):
        targets = node.targets if isinstance(node, ast.Assign) else []
        called = [node.func] if isinstance(node, ast.Call) and isinstance(statement, ast.Expr) else []
        for each in [*targets, *called]:
            root: ast.expr = each
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name):
                found.add(root.id)
    return found


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
