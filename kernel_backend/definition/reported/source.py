"""Read from a program's source the names of all values that it prints, logs or reports, if the source shows them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from kernel_backend.definition.reported.bound import bound_in
from kernel_backend.definition.reported.labels import labelled
from kernel_backend.definition.reported.texts import Part, counted, parts_of, percent_parts, text_of
from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.model.syntax import FunctionNode

_MOST_CALLS = 2000  # calls that are read; of larger programs nothing is said
# Packages whose functions print no values by themselves.
_QUIET = frozenset(sys.stdlib_module_names) | {
    "cv2", "datasets", "daylight", "einops", "keras", "lightning", "matplotlib", "mlflow", "numpy", "pandas", "PIL",
    "pytorch_lightning", "safetensors", "scipy", "seaborn", "sklearn", "skimage", "tensorboard", "tensorboardX",
    "tokenizers", "torch", "torchaudio", "torchmetrics", "torchvision", "tqdm", "transformers", "wandb", "yaml",
}  # fmt: skip
# Code that may print what its source does not show.
_HIDDEN = frozenset({
    "__import__", "autolog", "get_ipython", "import_module", "popen", "run_cell", "run_path", "subprocess", "system",
})  # fmt: skip
_TEXTS = frozenset({"display", "pprint", "print", "set_description", "set_description_str", "set_postfix_str", "write"})
_MESSAGES = frozenset({"critical", "debug", "error", "exception", "info", "log", "warn", "warning"})
_TAGGED = frozenset({"add_scalar", "log", "log_metric"})  # with a name and its value
_VALUES = frozenset({"log", "log_dict", "log_metrics", "report", "set_postfix"})  # with values by name
PRINTED = _TEXTS | _MESSAGES | _TAGGED | _VALUES | {"add_scalars"}
_OF_CALL = frozenset({
    "commit", "end", "epoch", "file", "flush", "logger", "on_epoch", "on_step", "ordered_dict", "prog_bar", "reduce_fx",
    "refresh", "sep", "step", "sync_dist", "synchronous", "validation",
})  # fmt: skip


class _Unseen(Exception):
    """The source does not show the name of a value."""


def names_in_source(
    trees: Mapping[str, ast.Module],
    loops: Sequence[TrainingLoop] = (),
    heard: Collection[str] = PRINTED,
    begin: int = 0,
) -> tuple[str, ...] | None:
    """Return the names of all values that a program reports, in source order; None if its source does not show them.

    `trees` has its modules by name ("": the program). `loops` are its training loops: variables of the outer ones are
    reported, too. `heard` are the names of the functions whose calls report values. What the program's top level prints
    above line `begin` is left out.

    Examples
    --------
    >>> names_in_source({"": ast.parse('print(f"Epoch {epoch}: Loss: {l}, Val: {v}")')})
    ('loss', 'val')
    >>> names_in_source({"": ast.parse('for name, value in results.items(): print(name, value)')})
    """
    roots = {each.partition(".")[0] for each in trees}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    above = [each.value for each in trees[""].body if isinstance(each, ast.Expr) and each.lineno < begin]
    calls = [node for node in nodes if isinstance(node, ast.Call) and _called(node) in heard and node not in above]
    if len(calls) > _MOST_CALLS or any(_hides(node, roots) for node in nodes):
        return None
    numbers = counted(list(trees.values()))
    try:
        found = [name for call in calls for name in _of_call(call, numbers)]
    except _Unseen:
        return None
    deepest = max((each.depth for each in loops), default=0)
    outer = [each for each in loops if each.depth < deepest and each.module in trees]
    bound = [each.name for loop in outer for each in bound_in(trees[loop.module], loop.line)]
    return tuple(dict.fromkeys([*found, *bound]))


def names_returned(tree: ast.Module, function: str) -> tuple[str, ...] | None:
    """Return the keys of the dicts that a function of a module returns; None if its source does not show them all."""
    nodes = [each for each in tree.body if isinstance(each, FunctionNode) and each.name == function]
    returned = [each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Return)]
    try:
        return tuple(dict.fromkeys(name for each in returned for name in _keys(each.value))) if returned else None
    except _Unseen:
        return None


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _hides(node: ast.AST, roots: Collection[str]) -> bool:
    match node:
        case ast.Import(names=names):
            packages = {each.name.partition(".")[0] for each in names}
        case ast.ImportFrom(module=module, level=0):
            packages = {str(module).partition(".")[0]}
        case ast.ImportFrom():
            return len(roots) == 1  # of modules that are not read
        case ast.Name(id=name):
            return name in {*_HIDDEN, "eval", "exec"}
        case ast.Attribute(attr=name):
            return name in _HIDDEN
        case _:
            return False
    return bool(packages & _HIDDEN) or not packages <= {*_QUIET, *roots}


def _of_call(call: ast.Call, numbers: Collection[str]) -> Iterator[str]:
    name, arguments = _called(call), call.args
    if name == "log" and _is_logarithm(call):
        return
    values = [each for each in arguments if isinstance(each, ast.Dict)]
    if name in _VALUES and (values or not arguments):
        yield from _named(call, values)
    elif (name in _TAGGED and name != "log") or (name == "log" and len(arguments) == 2 and _is_text(arguments[0])):
        yield _literal(arguments[0] if arguments else None)
    elif name == "add_scalars":
        main = _literal(arguments[0] if arguments else None)
        yield from (f"{main}/{each}" for each in _keys(arguments[1] if len(arguments) > 1 else None))
    elif name in _TEXTS | _MESSAGES:
        yield from labelled(_printed(call, numbers))
    else:
        raise _Unseen


def _is_logarithm(call: ast.Call) -> bool:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(owner, ast.Name) and owner.id in ("torch", "np", "numpy", "math", "jnp", "F"):
        return True
    return not call.args and not call.keywords  # of a tensor


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _named(call: ast.Call, values: Sequence[ast.Dict]) -> Iterator[str]:
    for each in values:
        yield from _keys(each)
    for word in call.keywords:
        if word.arg in ("ordered_dict", "metrics") or word.arg is None:
            yield from _keys(word.value)
        elif word.arg not in _OF_CALL:
            yield word.arg


def _keys(node: ast.expr | None) -> Iterator[str]:
    match node:
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if key is None:
                    yield from _keys(value)
                else:
                    yield _literal(key)
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=words) if all(each.arg for each in words):
            yield from (str(each.arg) for each in words)
        case _:
            raise _Unseen


def _literal(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _Unseen


def _printed(call: ast.Call, numbers: Collection[str]) -> str:
    words = {str(each.arg): each.value for each in call.keywords}
    parts: list[Part] = []
    for index, each in enumerate(call.args):
        if index and _called(call) in _MESSAGES:
            break  # filled into the message
        message = _called(call) in _MESSAGES
        parts += [" "] * bool(index) + (percent_parts(each, numbers) if message else parts_of(each, numbers))
    text = text_of(parts)
    end = words.get("end")
    if text is None or (end is not None and _literal(end)[-1:] not in ("\n", "\r")) or "sep" in words:
        raise _Unseen
    return text
