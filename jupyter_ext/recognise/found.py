"""What a cell is that has no roles: a loop, a class of a framework, a script; with its line, and what works instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jupyter_ext.recognise.cell import cell, options
from jupyter_ext.recognise.loop import Loop, first_loop, program, read_loop
from jupyter_ext.recognise.step import Unreadable
from jupyter_ext.recognise.trees import called, calls, has_backward
from kernel_backend.definition.contract import ROLES
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import module_tree

_FUNCTIONS = "def model(), def train_data() and def loss(output, target)"
_MODULE = "def model(): return {}(), def train_data(), and def loss(output, target) with what training_step computes"


@dataclass(frozen=True)
class Recognised:
    """What was found, in `line N` of the module; and, where it can be written, the same as functions."""

    text: str
    cell: str | None = None
    options: tuple[str, ...] = ()  # for the first line of that cell

    @property
    def shown(self) -> str:
        """The end of a message, where nothing else shows the cell."""
        return f", to be submitted with {' '.join(self.options) or 'no options'}:\n\n{self.cell}"


def recognise(source: str, roles_from: int) -> Recognised | None:
    """What the module's statements from line `roles_from` on are; None where nothing is recognised."""
    body = module_tree(source).body
    own = [each for each in body if each.lineno >= roles_from]
    statements = program(body)
    place = first_loop(statements)
    if place is not None and statements[place].lineno >= roles_from:
        return _loop(source, roles_from, body, statements)
    roles = {each.name for each in own if isinstance(each, ast.FunctionDef)} & set(ROLES)
    return None if roles else next(_others(own), None)


def _loop(source: str, roles_from: int, body: Sequence[ast.stmt], statements: Sequence[ast.stmt]) -> Recognised:
    place = first_loop(statements)
    assert place is not None
    at = statements[place]
    backward = next(calls(at, "backward"))
    head = source.splitlines()[at.lineno - 1].strip().rstrip(":")
    text = f"this cell is a training loop (line {at.lineno}: {head}; line {backward.lineno}: {ast.unparse(backward)})"
    try:
        loop = read_loop(statements)
    except Unreadable as why:
        return Recognised(f"{text}. Daylight trains functions. It cannot write them for you: {why}. Write {_FUNCTIONS}")
    written, words = _written(source, roles_from, body, loop), tuple(options(loop))
    if written is None:
        return Recognised(f"{text}. Daylight trains functions: write {_FUNCTIONS}")
    return Recognised(f"{text}. Daylight trains functions; these are yours", written, words)


def _written(source: str, roles_from: int, body: Sequence[ast.stmt], loop: Loop) -> str | None:
    """The loop as functions, if these make a definition together with what is above."""
    above = {id(each) for each in body if each.lineno < roles_from}
    defined = [each for each in body if isinstance(each, ast.ClassDef) and each.lineno > loop.statement.lineno]
    text = cell(loop, [*(each for each in loop.setup if id(each) not in above), *defined], source)
    module = "\n".join([*source.splitlines()[: roles_from - 1], text])
    try:
        parse(module, roles_from).bind({})
    except InvalidDefinition:
        return None
    return text


def _others(own: Sequence[ast.stmt]) -> Iterator[Recognised]:
    for each in own:
        if isinstance(each, ast.ClassDef) and any("LightningModule" in ast.unparse(base) for base in each.bases):
            yield _told(each, f"class {each.name} is a LightningModule", _MODULE.format(each.name))
        if isinstance(each, ast.ClassDef) and has_backward(each):
            yield _told(each, f"class {each.name} trains in a loop of its own", _FUNCTIONS)
    for statement in own:
        for call in (each for each in ast.walk(statement) if isinstance(each, ast.Call)):
            name = called(call)
            if name.endswith("Trainer") or (name == "train" and _receives(call, "trainer")):
                yield _told(call, f"{ast.unparse(call.func)}(...) trains by itself", f"its parts: {_FUNCTIONS}")
            if name == "compile" and any(calls(statement, "compile")) and _keras(own):
                yield _told(
                    call, f"{ast.unparse(call.func)}(...) makes a Keras model", f"its parts in torch: {_FUNCTIONS}"
                )
            if name == "fit":
                yield _told(call, f"{ast.unparse(call.func)}(...) trains by itself", f"its parts: {_FUNCTIONS}")
    for statement in own:
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            yield _told(statement, "it is a script that runs from here", _FUNCTIONS)
        if any(calls(statement, "parse_args")):
            yield _told(statement, "it is a script with arguments", f"{_FUNCTIONS}; arguments of theirs are name=value")


def _told(node: ast.stmt | ast.expr, what: str, instead: str) -> Recognised:
    return Recognised(
        f"{what} (line {node.lineno}), and Daylight trains functions as yet. What works instead: {instead}"
    )


def _receives(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Attribute) and name in ast.unparse(call.func.value).lower()


def _keras(own: Sequence[ast.stmt]) -> bool:
    text = "\n".join(ast.unparse(each) for each in own).lower()
    return "keras" in text or ".fit(" in text
