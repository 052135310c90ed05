"""Recognise loops whose iterations are trainings of their own, over folds, seeds or hyperparameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.model.syntax import FunctionNode

_OPTIMIZER = re.compile(r"SGD|ASGD|Rprop|RMSprop|LBFGS|Lion|Lamb|Muon|\w*Adam\w*|Ada\w+|\w*[Oo]ptim\w*")
_COPIES = re.compile(r"\b(deepcopy|copy|clone|state_dict)\b")
_RESETS = frozenset({"load_state_dict", "apply", "reset_parameters"})
_STEPS = frozenset({"backward", "manual_backward", "step"})
_DEEPEST = 6  # limit of names and arguments to follow


class Part(NamedTuple):
    """Code that an iteration runs outside of inner training loops: its own, or that of a function which it calls."""

    nodes: Sequence[ast.AST]
    name: str = ""  # by which the function is called
    function: FunctionNode | None = None


class Iteration(NamedTuple):
    """Code of one iteration of a loop, and what it finds."""

    parts: Sequence[Part]  # without inner training loops
    targets: frozenset[str]  # names that the loop assigns
    used: Mapping[str, int]  # how often training loops of the program use a name, other than to copy what it names


def trains_anew(iteration: Iteration) -> bool:
    """Return True if a loop makes a model and its optimizer anew in each iteration, before an inner loop trains it.

    A loop that takes steps itself does not, nor does one that trains copies of a model which changes meanwhile, as
    meta-learning and federated averaging do.
    """
    if any(_last(each) in _STEPS for part in iteration.parts for each in _calls(part.nodes)):
        return False
    return any(
        _is_new(path, part, iteration, _DEEPEST)
        for part in iteration.parts
        for each in _calls(part.nodes)
        if _OPTIMIZER.fullmatch(_last(each))
        for path in _optimized(each)
    )


def _optimized(call: ast.Call) -> Iterator[str]:
    """Yield what an optimizer trains: the modules X of `X.parameters()`, else the names in its first argument."""
    calls = [each for each in ast.walk(call) if isinstance(each, ast.Call) and _last(each) in _PARAMETERS]
    owners = [ast.unparse(each.func.value) for each in calls if isinstance(each.func, ast.Attribute)]
    yield from owners or (each.id for arg in call.args[:1] for each in ast.walk(arg) if isinstance(each, ast.Name))


_PARAMETERS = frozenset({"parameters", "named_parameters"})


def _is_new(path: str, part: Part, iteration: Iteration, left: int) -> bool:
    """Return True if each iteration makes, resets or is given the module `path` of a part of its code."""
    if not left or path in iteration.targets:
        return path in iteration.targets
    if any(_resets(each, path, part, iteration, left - 1) for each in _calls(part.nodes)):
        return True
    values = [value for node in part.nodes for value in _assigned(node, path)]
    values += list(_arguments(path, part, iteration.parts))
    return any(_is_made(value, part, iteration, left - 1) for value in values)


def _is_made(value: ast.expr, part: Part, iteration: Iteration, left: int) -> bool:
    if copied := _copied(value):
        return all(_is_constant(name, part, iteration, left) for name in copied)
    names = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
    if isinstance(value, ast.Name | ast.Attribute):
        owners = [part, *(each for each in iteration.parts if each is not part)]
        return any(_is_new(ast.unparse(value), each, iteration, left) for each in owners)
    return bool(names & iteration.targets) or any(isinstance(each, ast.Call) for each in ast.walk(value))


def _copied(value: ast.expr) -> set[str]:
    """Return the names of which an expression makes a copy; an empty set if it makes none."""
    named = [
        each.id for node in ast.walk(value) if is_copy(node) for each in ast.walk(node) if isinstance(each, ast.Name)
    ]
    return {each for each in named if not _COPIES.search(each)}


def is_copy(node: ast.AST) -> bool:
    """Return True for a call that makes a copy of what it names, such as `deepcopy(net)` or `net.state_dict()`."""
    return isinstance(node, ast.Call) and _COPIES.search(_last(node)) is not None


def _is_constant(name: str, part: Part, iteration: Iteration, left: int, passed: int = 0) -> bool:
    """Return True if a name means the same in every iteration, or something new, and what it means is not trained.

    Calls that only pass it on to the function whose code copies it have `passed` it.
    """
    if not left or name in iteration.targets:
        return name in iteration.targets
    given = list(_arguments(name, part, iteration.parts))
    names = [each.id for each in given if isinstance(each, ast.Name)]
    if given:
        constant = all(_is_constant(each, iteration.parts[0], iteration, left - 1, names.count(each)) for each in names)
        return constant and len(names) == len(given)
    return iteration.used.get(name, 0) <= passed


def _assigned(node: ast.AST, path: str) -> Iterator[ast.expr]:
    """Yield the value that a statement assigns to `path`, unless it is made of that itself, as by `net = net.to(0)`."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    value = getattr(node, "value", None)
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or value is None:
        return
    named = [inner for each in targets if each for inner in (each.elts if isinstance(each, ast.Tuple) else [each])]
    if path in map(ast.unparse, named) and path not in map(ast.unparse, _paths(value)):
        yield value


def _paths(value: ast.expr) -> Iterator[ast.expr]:
    yield from (each for each in ast.walk(value) if isinstance(each, ast.Name | ast.Attribute))


def _arguments(path: str, part: Part, parts: Sequence[Part]) -> Iterator[ast.expr]:
    """Yield what the calls of a part's function give for its argument `path`."""
    if part.function is None:
        return
    names = [each.arg for each in (*part.function.args.posonlyargs, *part.function.args.args) if each.arg != "self"]
    for call in (call for each in parts for call in _calls(each.nodes) if _last(call) == part.name):
        given = dict(zip(names, call.args, strict=False)) | {each.arg: each.value for each in call.keywords}
        if path in given:
            yield given[path]


def _resets(call: ast.Call, path: str, part: Part, iteration: Iteration, left: int) -> bool:
    if not isinstance(call.func, ast.Attribute) or ast.unparse(call.func.value) != path or _last(call) not in _RESETS:
        return False
    return all(_is_constant(name, part, iteration, left) for each in call.args for name in _copied(each))


def _calls(nodes: Sequence[ast.AST]) -> Iterator[ast.Call]:
    yield from (each for each in nodes if isinstance(each, ast.Call))


def _last(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2] if isinstance(call.func, ast.Name | ast.Attribute) else ""
