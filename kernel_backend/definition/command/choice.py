"""Decide whether Daylight runs the training loop of a command's program itself, or starts the program unchanged."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernel_backend.definition.command_line import Command
from kernel_backend.definition.lightning.cell import is_lightning
from kernel_backend.definition.script.definition import is_script
from kernel_backend.definition.script.modules import without_program
from kernel_backend.definition.script.own_ranks import first_line, wired
from kernel_backend.definition.trainer.cell import is_trainer

OWN_CHECKPOINTS = "DAYLIGHT_CHECKPOINTS"  # variable with the folder of a command's own checkpoints
# Frameworks besides torch whose losses have a backward().
_OTHERS = frozenset({"chainer", "jittor", "mindspore", "mxnet", "oneflow", "paddle", "tinygrad"})


def own_process(tree: ast.Module, command: Command, modules: Mapping[str, ast.Module]) -> str | None:
    """Return why a program must be started unchanged, in its own processes; None if Daylight can run its loop.

    The reason is "" for a program that is not in Python. `tree` is the syntax tree of the training definition.

    Examples
    --------
    >>> train = Command(words=("python", "train.py"), at=1, taken=True)
    >>> own_process(ast.parse("import torch\\nfor x in data: loss(x).backward()\\nmark"), train, {})
    >>> own_process(ast.parse("import torch\\nprint(1)\\nmark"), train, {})
    'no training loop is recognised in it'
    """
    if not command.taken:
        return command.why
    program = ast.Module(tree.body[:-1], tree.type_ignores)
    others = without_program(modules, command)
    trees = {"": program, **others}
    if place := wired(trees):
        return f"the program wires its ranks itself in {place}"
    if place := first_line(trees, _saves):
        return f"the program saves checkpoints of its own in {place}"
    if is_lightning(program, 1) or is_trainer(program, 1):
        return "a framework's Trainer takes its steps"
    imported = {name for one in trees.values() for name in _imported(one)}
    if "torch" not in imported and (found := imported & _OTHERS):
        return f"it trains with {min(found)}"
    return None if is_script(program, 1, others) else "no training loop is recognised in it"


def _saves(node: ast.AST) -> bool:
    """Return whether code uses the command's checkpoint folder, by its environment variable or `run.checkpoint`."""
    match node:
        case ast.Attribute(value=ast.Name(id="run"), attr="checkpoint" | "checkpoint_dir"):
            return True
        case ast.Constant(value=str(text)):
            return text == OWN_CHECKPOINTS
    return False


def _imported(tree: ast.Module) -> set[str]:
    """Return the names of the top-level packages that a module imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found
