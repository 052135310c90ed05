"""Find the Hugging Face Trainer that a function `train(run)` trains, and the settings in its arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

from kernel_backend.definition.hugging_face import check_kind, classes, is_made
from kernel_backend.definition.trainer.cell import arguments_of
from kernel_backend.definition.trainer.definition import check_arguments, settings_of, validation_hints
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import FunctionNode

# Methods of `run` that take the steps of a loop, or restore it, which the Trainer's loop does itself.
_OF_LOOPS = ("epochs", "loader", "restore", "steps")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class TrainerWithin(NamedTuple):
    """Trainer that the user's function `train(run)` trains, with the settings in its TrainingArguments."""

    written: str  # its class, as the cell writes it
    settings: dict[str, Any]  # fields of Config that its TrainingArguments set
    hints: tuple[str, ...]


def trainer_within(tree: ast.Module, run: str) -> TrainerWithin | None:
    """Return the Trainer whose `train()` the code of a function `train(run)` calls; None if there is none.

    `run` is the name of the function's first argument. Raises InvalidDefinition if there are several such Trainers, or
    if a job cannot train it exactly.
    """
    trainers = classes(tree)
    made = _made(tree, trainers)
    trains = [node for node in ast.walk(tree) if _trained(node, made, trainers) is not None]
    if not trains:
        return None
    call, *others = trains
    assert isinstance(call, ast.Call)
    looped = [node for loop in ast.walk(tree) if isinstance(loop, _LOOPS) for node in ast.walk(loop) if node is call]
    if others or looped:
        again = others[0] if others else call
        raise _within(
            again,
            "trains a Trainer again, and a trial trains one, once: submit a trial for each, as in `%%dlsubmit "
            "--search grid fold=0,1,2` with `def train(run, fold)`",
        )
    trainer = _trained(call, made, trainers)
    assert trainer is not None
    check_kind(trainer, trainers)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"{run}.{name}" for name in _OF_LOOPS}:
            raise _within(
                node,
                f"is for a loop of your own, and here {ast.unparse(call)} (line {call.lineno}) takes the steps and "
                "restores what it trains: take one of them out",
            )
    arguments = arguments_of(trainer, _calls(tree))
    given = {each.arg: each.value for each in arguments.keywords if each.arg}
    check_arguments(given)
    asked = {"num_train_epochs": "epochs", "max_steps": "steps"}
    known = {name: node for name, node in given.items() if ast.unparse(node) != asked.get(name)}
    settings = settings_of(known, f"write one, or num_train_epochs=epochs in train({run}, epochs), which --epochs sets")
    if known.keys() != given.keys():  # --epochs or --steps alone say how long it is
        settings.pop("epochs", None)
    return TrainerWithin(ast.unparse(trainer.func), settings, tuple(validation_hints(trainer, given)))


def _made(tree: ast.Module, trainers: dict[str, str]) -> dict[str, ast.Call]:
    """Return the calls that create Trainers, by name of the variable or attribute to which the Trainer is assigned.

    If a function returns the Trainer, that is the call within this function.
    """
    found: dict[str, ast.Call] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and is_made(node.value, trainers):
            assert isinstance(node.value, ast.Call)
            found |= {ast.unparse(target): node.value for target in node.targets}
    functions = [node for node in ast.walk(tree) if isinstance(node, FunctionNode)]
    makers = {each.name: call for each in functions for call in _returned(each, found, trainers)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            maker = makers.get(ast.unparse(node.value.func))
            found |= {ast.unparse(target): maker for target in node.targets if maker is not None}
    return found


def _returned(function: ast.AST, made: dict[str, ast.Call], trainers: dict[str, str]) -> Iterator[ast.Call]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            if isinstance(node.value, ast.Call) and is_made(node.value, trainers):
                yield node.value
            elif ast.unparse(node.value) in made:
                yield made[ast.unparse(node.value)]


def _trained(node: ast.AST, made: dict[str, ast.Call], trainers: dict[str, str]) -> ast.Call | None:
    """Return the call that creates the Trainer whose `train()` a node calls; None for any other node.

    `made` has such calls by the variable to which the Trainer is assigned; `trainers` are the Trainer classes.
    """
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "train"):
        return None
    owner = node.func.value
    return owner if isinstance(owner, ast.Call) and is_made(owner, trainers) else made.get(ast.unparse(owner))


def _calls(tree: ast.Module) -> dict[str, ast.Call]:
    return {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _within(node: ast.AST, why: str) -> InvalidDefinition:
    text = ast.unparse(node)
    line = int(getattr(node, "lineno", 0))
    return InvalidDefinition(f"{text} (line {line}) {why}", line=line, text=text)
