"""Identify training code that is no training definition, such as a framework's Trainer, and suggest an alternative."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jupyter_ext.recognise.scripts import Script, scripts
from jupyter_ext.recognise.trees import binds, called, calls, has_backward, root
from kernel_backend.definition.contract import ROLES
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import module_tree

_FUNCTIONS = "def model(), def train_data() and def loss(output, target)"
_KERAS = (
    "def model() that makes, compiles and returns it, def train_data() that returns x, y, and where you have them def "
    "validation_data() and def callbacks(), without the call of fit"
)
_AS_IT_IS = "Or write %%dlrun in place of %%dlsubmit: the cell runs as it is, once, in one process"
_TRAIN = frozenset({"fit", "fit_one_cycle", "fine_tune", "fit_generator", "train_on_batch"})
_TRAINED_BY = frozenset({"xgb", "xgboost", "lgb", "lightgbm"})  # xgb.train(...)
_NO_NETWORKS = frozenset({"sklearn", "xgboost", "lightgbm", "catboost", "statsmodels", "imblearn"})
_START_RANKS = frozenset({"init_process_group", "hvd.init", "deepspeed.initialize"})


@dataclass(frozen=True)
class Recognised:
    """Advice on a cell without training functions: an error text and, if possible, the cell rewritten."""

    text: str
    cell: str | None = None


def recognise(source: str, roles_from: int) -> Recognised | None:
    """Return advice on a cell whose code from line `roles_from` on trains without being a training definition.

    Such code calls a framework, runs a script, or only defines a function or class with a training loop. Returns None
    for any other code.
    """
    body = module_tree(source).body
    own = [each for each in body if each.lineno >= roles_from]
    if _roles(own):
        return None
    return next(_others(own, body), None) or next(_scripts(source, roles_from, own), None)


def _roles(own: Sequence[ast.stmt]) -> set[str]:
    return {each.name for each in own if isinstance(each, ast.FunctionDef)} & set(ROLES)


def _others(own: Sequence[ast.stmt], body: Sequence[ast.stmt]) -> Iterator[Recognised]:
    for each in own:
        if isinstance(each, ast.ClassDef) and has_backward(each):
            yield _uncalled(each, f"class {each.name}", f"{each.name}(...) and its method that trains")
    for call in (each for statement in own for each in ast.walk(statement) if isinstance(each, ast.Call)):
        yield from _without_network(call, body)
        yield from _call(call, own)
    for each in own:
        if isinstance(each, ast.FunctionDef) and has_backward(each):
            yield _uncalled(each, f"def {each.name}(...)", f"{each.name}(...)")
    for statement in own:
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            yield _told(statement, "it is a script that runs from here, without a training loop", _FUNCTIONS)
        if any(calls(statement, "parse_args")):
            yield _told(statement, "it is a script with arguments, without a training loop", _FUNCTIONS)


def _without_network(call: ast.Call, body: Sequence[ast.stmt]) -> Iterator[Recognised]:
    """Yield advice for a call that trains a model of scikit-learn or another library without neural networks."""
    name, function = called(call), call.func
    if name not in _TRAIN | {"train"} or not isinstance(function, ast.Attribute):
        return
    library = _library(root(function.value), body)
    if library in _NO_NETWORKS:
        yield Recognised(
            f"{ast.unparse(function)}(...) trains a model of {library} (line {call.lineno}), which is no network that "
            "Daylight could train on several slots. Write %%dlrun in place of %%dlsubmit: the cell runs as it is, in a "
            "job of one process, and job.result() returns the value of its last expression"
        )


def _library(name: str, body: Sequence[ast.stmt]) -> str:
    """Return the package from which a name, or the class of its value, was imported in `body`; "" if unknown."""
    for each in reversed(body):
        if name not in binds(each):
            continue
        if isinstance(each, ast.ImportFrom):
            return (each.module or "").split(".")[0]
        if isinstance(each, ast.Import):
            return next(one.name.split(".")[0] for one in each.names if (one.asname or one.name.split(".")[0]) == name)
        value = each.value if isinstance(each, ast.Assign) else None
        maker = root(value.func) if isinstance(value, ast.Call) else ""
        return _library(maker, body) if maker not in ("", name) else ""
    return ""


def _call(call: ast.Call, own: Sequence[ast.stmt]) -> Iterator[Recognised]:
    name, written = called(call), ast.unparse(call.func)
    what, parts = f"{written}(...) trains by itself", f"its parts: {_FUNCTIONS}"
    if name.endswith("Trainer"):
        yield _told(call, what, _of_trainer(call) or parts)
    elif name == "train" and (_receives(call, "trainer") or written.partition(".")[0] in _TRAINED_BY):
        yield _told(call, what, parts)
    elif name == "compile" and isinstance(call.func, ast.Attribute) and _keras(own):
        yield _told(call, f"{written}(...) makes a Keras model", _KERAS)
    elif name in _TRAIN:
        yield _told(call, what, parts)
    elif name in _START_RANKS or written in _START_RANKS:
        yield _told(call, f"{written}(...) starts the ranks itself", f"{_FUNCTIONS}: Daylight starts the ranks")


def _of_trainer(call: ast.Call) -> str | None:
    """Return a hint for a transformers Trainer, based on its arguments; None if it has no training data."""
    given = {each.arg: ast.unparse(each.value) for each in call.keywords}
    if "train_dataset" not in given:
        return None
    names = {"train_data": "train_dataset", "validation_data": "eval_dataset"}
    data = [f"def {role}(): return {given[name]}" for role, name in names.items() if name in given]
    model = f"def model() that makes {given['model']}" if "model" in given else "def model()"
    return f"{model}, {', '.join(data)} and def loss(output): return output.loss"


def _scripts(source: str, roles_from: int, own: Sequence[ast.stmt]) -> Iterator[Recognised]:
    for each in scripts(source, roles_from, own):
        instead = f"%dlsubmit {each.file}" if _is_functions(each) else f"%dlsubmit -- python {each.arguments}"
        yield Recognised(
            f"this cell runs {each.file} (line {each.line}: {each.command}), and a job runs a program by itself. "
            f"Submit that one: {instead}"
        )


def _is_functions(script: Script) -> bool:
    """Return True if a script's file is a training definition of functions, without a loop of its own."""
    try:
        return parse(script.source() or "").form != "script"
    except InvalidDefinition:
        return False


def _uncalled(node: ast.stmt, what: str, call: str) -> Recognised:
    return Recognised(
        f"{what} trains in a loop of its own (line {node.lineno}), and nothing in this cell calls it: write the call, "
        f"such as {call}, below it"
    )


def _told(node: ast.stmt | ast.expr, what: str, instead: str) -> Recognised:
    return Recognised(
        f"{what} (line {node.lineno}), and a job takes the steps of a training itself. Write {instead}. {_AS_IT_IS}"
    )


def _receives(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Attribute) and name in ast.unparse(call.func.value).lower()


def _keras(own: Sequence[ast.stmt]) -> bool:
    text = "\n".join(ast.unparse(each) for each in own).lower()
    return "keras" in text or ".fit(" in text
