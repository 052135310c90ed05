"""Write the script for a cell in which a framework's Trainer trains: its code with the submission's values."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from jupyter_ext.plain_script import helpers
from jupyter_ext.plain_script.template import filled
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.lightning.cell import lightning_cell
from kernel_backend.definition.trainer.cell import trainer_cell
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config
from kernel_backend.model.record import Value
from kernel_backend.model.syntax import module_tree

Arguments = Mapping[ast.Call, Mapping[str, Any]]  # by the calls that get them

_HEAD = '''
"""Train in one process, with <framework> alone, what `<command>` trains.

<differences>
"""

<futures>
import argparse
import hashlib
import random

import numpy
import torch

args = argparse.Namespace(seed=<seed>)
?threads torch.set_num_threads(<threads>)

<seeds>


reseed("init", "definition")
del args

# The code of the notebook.

<code>
'''
_LIGHTNING = (
    "Lightning shuffles in an order of its own, and draws on from one step to the next: numbers are those of the\n"
    "experiment where nothing is shuffled and no layer draws."
)
_TRAINER = "Its numbers are those of the experiment on one slot, with as many threads."


def framework_script(
    source: str, roles_from: int, definition: Definition, config: Config, params: Mapping[str, Value], command: str
) -> str:
    """Return the script for a cell in which the Trainer of Hugging Face or Lightning trains.

    `source` is the captured module, in which the submitted cell begins at line `roles_from`; `params` are its
    hyperparameters, and `command` is the command line of the submission. Raises InvalidRequest for a cell that does not
    call a training, and for options that must be set in the code instead.
    """
    changed = {name: value for name, value in params.items() if value != definition.defaults[name]}
    own = definition.settings
    for flag, name in (("--clip", "clip"), ("--amp", "amp")):
        if getattr(config, name) != own.get(name):
            raise InvalidRequest(f"--as-script leaves the Trainer as it is: write {flag} into its arguments instead")
    tree = module_tree(source)
    if definition.form == "trainer":
        cell = trainer_cell(tree, roles_from)
        code = with_arguments(source, {cell.arguments: {**changed, **_of_trainer(config, own)}})
        code += "" if cell.train is not None else f"\n{cell.name}.train()"
    else:
        code = with_arguments(source, _of_lightning(tree, roles_from, definition, config, changed))
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    lines = code.rstrip().split("\n")
    for node in futures:
        lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    texts = {
        "framework": "transformers" if definition.form == "trainer" else "Lightning",
        "command": command,
        "differences": _TRAINER if definition.form == "trainer" else _LIGHTNING,
        "futures": "\n".join(map(ast.unparse, futures)),
        "seed": str(config.seed),
        "threads": str(config.threads),
        "seeds": helpers.SEEDS.strip("\n"),
    }
    head = filled(_HEAD, {"threads"} if config.threads is not None else (), texts)
    return filled(head, (), {"code": "\n".join(lines)}) + "\n"


def with_arguments(source: str, calls: Arguments) -> str:
    """Return the source with keyword arguments set in its calls; `calls` maps a call's node to values by name.

    Examples
    --------
    >>> one = "f(x)"
    >>> with_arguments(one, {ast.parse(one).body[0].value: {"y": 1}})
    'f(x, y=1)'
    >>> source = "net = Net(\\n    4,\\n    lr=0.1,  # small\\n)"
    >>> call = ast.parse(source).body[0].value
    >>> print(with_arguments(source, {call: {"lr": 0.2, "width": 3}}))
    net = Net(
        4,
        lr=0.2,  # small
    width=3)
    """
    text = source.encode()
    begins = [0, *accumulate(len(line) + 1 for line in text.split(b"\n"))]
    changes: list[tuple[int, int, str]] = []
    for call, values in calls.items():
        given = {each.arg: each.value for each in call.keywords if each.arg}
        for name in given.keys() & values.keys():
            node = given[name]
            start, stop = begins[node.lineno - 1] + node.col_offset, _end(node, begins)
            changes.append((start, stop, repr(values[name])))
        new = [f"{name}={value!r}" for name, value in values.items() if name not in given]
        if new:
            end = _end(call, begins) - 1
            arguments: list[ast.expr | ast.keyword] = [*call.args]
            arguments += call.keywords
            ends = max((_end(each, begins) for each in arguments), default=None)
            comma = ", " if ends is not None and b"," not in text[ends:end] else ""
            changes.append((end, end, comma + ", ".join(new)))
    for start, stop, written in sorted(changes, reverse=True):
        text = text[:start] + written.encode() + text[stop:]
    return text.decode()


def _end(node: ast.expr | ast.keyword, begins: list[int]) -> int:
    return begins[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)


def _of_trainer(config: Config, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return seed and length of the training as keyword arguments of TrainingArguments, if the submission changed them.

    `own` has the settings that the cell's code gives to its TrainingArguments.
    """
    found: dict[str, Any] = {"seed": config.seed} if config.seed != own["seed"] else {}
    if config.steps is not None and config.steps != own.get("steps"):
        found["max_steps"] = config.steps
    elif config.steps is None and config.epochs != own.get("epochs"):
        found |= {"num_train_epochs": config.epochs, "max_steps": -1}
    return found


def _of_lightning(
    tree: ast.Module, roles_from: int, definition: Definition, config: Config, changed: Mapping[str, Value]
) -> dict[ast.Call, dict[str, Any]]:
    """Return the arguments that the submission changes, by call: those of the cell's classes and of its Trainer.

    `tree` is the captured module, in which the submitted cell begins at line `roles_from`. `changed` has the
    hyperparameters whose values differ from those in the code.
    """
    cell = lightning_cell(tree, roles_from)
    if cell.fit is None or cell.trainer is None:
        raise InvalidRequest(
            "--as-script writes a cell whose Trainer trains, and this one has none: write\n"
            f"trainer = L.Trainer(max_epochs={config.epochs})\ntrainer.fit(...)"
        )
    found = {cell.made[name]: values for name, values in _by_class(definition, changed) if name in cell.made}
    length = {"max_steps": config.steps} if config.steps is not None else {"max_epochs": config.epochs}
    own = {"max_steps": definition.settings.get("steps"), "max_epochs": definition.settings.get("epochs")}
    return found | {cell.trainer: {name: value for name, value in length.items() if value != own[name]}}


def _by_class(definition: Definition, changed: Mapping[str, Value]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, values in definition.given(changed).items():
        if values:
            yield name, values
