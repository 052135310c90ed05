"""Find the Hugging Face Trainer, its arguments and its `train` call in the syntax tree of a cell."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kernel_backend.definition.hugging_face import check_kind, classes, is_made
from kernel_backend.definition.lightning.cell import is_main
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import FunctionNode

_ARGS = 1  # index of `args` among the Trainer's positional arguments
_FORM = "trainer = Trainer(model=model, args=TrainingArguments(...), train_dataset=...)\ntrainer.train()"


@dataclass(frozen=True)
class TrainerCell:
    """Syntax nodes of a cell that trains with a Trainer: its calls, and the statements after the training."""

    name: str  # the variable that holds the Trainer
    trainer: ast.Call
    arguments: ast.Call  # creates the TrainingArguments
    train: ast.stmt | None  # `trainer.train()`; None if the cell only creates the Trainer
    after: Sequence[ast.stmt]  # statements after `train`, which a job does not run


def is_trainer(tree: ast.Module, roles_from: int) -> bool:
    """Return True if the code from line `roles_from` on creates a Trainer, or trains one that earlier code created."""
    names, trainers = held_trainers(tree), classes(tree)
    own = [each for each in statements(tree.body) if each.lineno >= roles_from]
    return any(
        isinstance(node, ast.Call) and (is_made(node, trainers) or _trained(node) in names)
        for each in own
        for node in ast.walk(each)
    )


def trainer_cell(tree: ast.Module, roles_from: int) -> TrainerCell:
    """Return the Trainer, its TrainingArguments and its `train` call in the code from line `roles_from` on.

    Raises InvalidDefinition if the Trainer is created in a function, if there are two Trainers, or if the code has no
    call that creates the TrainingArguments.
    """
    trainers, body = classes(tree), statements(tree.body)
    made = {
        target.id: each.value
        for each in body
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    held = {name: call for name, call in made.items() if is_made(call, trainers)}
    train = next((each for each in body if each.lineno >= roles_from and statement_trains(each, held)), None)
    for each in body:
        for node in ast.walk(each):
            if isinstance(node, ast.Call) and is_made(node, trainers) and node not in held.values():
                raise _refused(
                    node, "must be assigned to a name at the top level of the cell, so that the job can find it"
                )
    if len(held) != 1:
        second = list(held.values())[1]
        raise _refused(second, "is a second Trainer: submit one cell for each")
    ((name, call),) = held.items()
    check_kind(call, trainers)
    place = body.index(train) if train is not None else len(body)
    return TrainerCell(name, call, arguments_of(call, made), train, body[place + 1 :])


def statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a module, including those within `if __name__ == "__main__":`."""
    found: list[ast.stmt] = []
    for each in body:
        found += statements(each.body) if isinstance(each, ast.If) and is_main(each) else [each]
    return found


def held_trainers(tree: ast.Module) -> set[str]:
    """Return the variables to which a module's top level assigns Trainers."""
    trainers = classes(tree)
    return {
        target.id
        for each in statements(tree.body)
        if isinstance(each, ast.Assign) and is_made(each.value, trainers)
        for target in each.targets
        if isinstance(target, ast.Name)
    }


def _trained(call: ast.Call) -> str:
    """Return the variable in a call `variable.train()`; "" for other calls."""
    function = call.func
    named = isinstance(function, ast.Attribute) and function.attr == "train" and isinstance(function.value, ast.Name)
    return ast.unparse(function).partition(".")[0] if named else ""


def statement_trains(statement: ast.stmt, held: Collection[str]) -> bool:
    """Return True if a statement calls `train` of one of the `held` variables; definitions call nothing."""
    if isinstance(statement, FunctionNode | ast.ClassDef):
        return False
    return any(isinstance(node, ast.Call) and _trained(node) in held for node in ast.walk(statement))


def arguments_of(trainer: ast.Call, made: Mapping[str, ast.Call]) -> ast.Call:
    """Return the call that creates a Trainer's TrainingArguments.

    `trainer` is the call that creates the Trainer; `made` maps each variable to the call whose result it is assigned.
    Raises InvalidDefinition if the code has no such call, or if the call unpacks arguments by `**`.
    """
    given = next((each.value for each in trainer.keywords if each.arg == "args"), None)
    if given is None and len(trainer.args) > _ARGS:
        given = trainer.args[_ARGS]
    found = made.get(given.id) if isinstance(given, ast.Name) else given
    if not isinstance(found, ast.Call):
        raise _refused(trainer, "has arguments that the cell does not show: write args=TrainingArguments(...)")
    if any(each.arg is None for each in found.keywords):
        raise _refused(found, "has arguments that the cell does not show: write them out for **")
    return found


def _refused(call: ast.Call, why: str) -> InvalidDefinition:
    text = f"{ast.unparse(call.func)}(...)"
    return InvalidDefinition(f"{text} (line {call.lineno}) {why}, as in\n{_FORM}", line=call.lineno, text=text)
