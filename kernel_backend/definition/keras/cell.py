"""Detect from the syntax tree that a cell trains a Keras model, and the Keras backend that it selects."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import cast

from kernel_backend.definition.contract import KerasBackend
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import FunctionNode

_COMPILED = frozenset({"optimizer", "loss", "metrics"})  # arguments that distinguish Keras' compile from torch's
_VARIABLE = "KERAS_BACKEND"


def is_keras(tree: ast.Module, roles_from: int) -> bool:
    """Return True if the code from line `roles_from` on has a function `model` that compiles a Keras model."""
    own = {each.name: each for each in tree.body if isinstance(each, FunctionNode) and each.lineno >= roles_from}
    return "model" in own and "loss" not in own and imports_keras(tree) and any(compiles(own["model"], tree))


def keras_backend(tree: ast.Module) -> KerasBackend:
    """Return the Keras backend that the code selects: that of `KERAS_BACKEND`, TensorFlow if it imports that, or torch.

    Raises InvalidDefinition for another backend, for Keras 2, and for TensorFlow in a cell for torch.
    """
    selected: KerasBackend | None = None
    for node in ast.walk(tree):
        wanted = _backend(node)
        if wanted in ("torch", "tensorflow"):
            selected = cast("KerasBackend", wanted)
        elif wanted is not None:
            raise _refused(
                node,
                f'{ast.unparse(node)} (line {{line}}) asks for Keras on {wanted}, and a job trains on "torch" or '
                '"tensorflow": take the line out, or write one of them; keras.layers and keras.ops run on each',
            )
    for node in ast.walk(tree):
        module = _tensorflow(node)
        if module is None:
            continue
        if module.partition(".")[0] == "tf_keras":
            raise _refused(
                node, f"line {{line}} imports {module}, which is Keras 2, and a job trains Keras 3: {_KERAS_3}"
            )
        if selected == "torch":
            raise _refused(
                node,
                f"line {{line}} imports {module}, and this cell asks for Keras on torch: {_KERAS_3}, and numpy arrays "
                "or a DataLoader for tf.data; or take the line out that asks for torch",
            )
        selected = "tensorflow"
    return selected or "torch"


def unsaved_draws(source: str) -> str:
    """Return a call in the code that draws from a state of TensorFlow that no checkpoint can hold; empty if none does.

    Examples
    --------
    >>> unsaved_draws("x = tf.random.normal((2,))"), unsaved_draws("x = tf.random.stateless_normal((2,), [1, 2])")
    ('tf.random.normal', '')
    """
    for node in ast.walk(ast.parse(source)):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        package, _, last = name.rpartition(".")
        if package in ("tf.random", "tensorflow.random") and last != "set_seed" and not last.startswith("stateless_"):
            return name
    return ""


_KERAS_3 = "write `import keras` and take keras.layers, keras.ops and keras.utils from there"


def _refused(node: ast.AST, text: str) -> InvalidDefinition:
    line = getattr(node, "lineno", 0)
    return InvalidDefinition(text.replace("{line}", str(line)), line=line)


def imports_keras(tree: ast.Module) -> bool:
    """Return True if the code imports Keras, also within functions."""
    return any(name.partition(".")[0] in ("keras", "tensorflow") for each in ast.walk(tree) for name in _imported(each))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and not node.level:
        yield node.module or ""
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)


def _tensorflow(node: ast.AST) -> str | None:
    return next((name for name in _imported(node) if name.partition(".")[0] in ("tensorflow", "tf_keras")), None)


def compiles(function: ast.AST, tree: ast.Module) -> Iterator[bool]:
    """Yield, for each call in a function, whether it is `compile` of a Keras model.

    Calls in the module's functions that it calls, directly or not, are included.
    """
    helpers = {each.name: each for each in tree.body if isinstance(each, FunctionNode)}
    seen: list[ast.AST] = [function]
    for each in seen:
        for node in ast.walk(each):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and (called := helpers.get(node.func.id)) and called not in seen:
                seen.append(called)
            yield _is_compile(node)


def _is_compile(node: ast.Call) -> bool:
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "compile"):
        return False
    return bool(node.args) or any(each.arg is None or each.arg in _COMPILED for each in node.keywords)


def _backend(node: ast.AST) -> str | None:
    """Return the Keras backend that a statement selects, by `os.environ["KERAS_BACKEND"] = "jax"` or `set_backend`."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        key = node.targets[0].slice
        if isinstance(key, ast.Constant) and key.value == _VARIABLE:
            return _text(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr == "set_backend":
            return _text(node.args[0])
        first = node.args[0]
        if isinstance(first, ast.Constant) and first.value == _VARIABLE and len(node.args) > 1:
            return _text(node.args[1])  # os.environ.setdefault
    return None


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
