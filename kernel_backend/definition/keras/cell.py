"""Detect from the syntax tree that a cell trains a Keras model, and the Keras backend that it selects."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import FunctionNode

_COMPILED = frozenset({"optimizer", "loss", "metrics"})  # arguments that distinguish Keras' compile from torch's
_VARIABLE = "KERAS_BACKEND"


def is_keras(tree: ast.Module, roles_from: int) -> bool:
    """Return True if the code from line `roles_from` on has a function `model` that compiles a Keras model."""
    own = {each.name: each for each in tree.body if isinstance(each, FunctionNode) and each.lineno >= roles_from}
    return "model" in own and "loss" not in own and _imports_keras(tree) and any(_compiles(own["model"], tree))


def check_backend(tree: ast.Module) -> None:
    """Raise InvalidDefinition if the code selects another Keras backend than torch."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        wanted = _backend(node)
        if wanted is not None and wanted != "torch":
            raise InvalidDefinition(
                f"{ast.unparse(node)} (line {line}) asks for Keras on {wanted}, and a job trains Keras on torch: "
                'take the line out, or write "torch" there; code of keras.layers and keras.ops runs on each backend',
                line=line,
            )
        if module := _tensorflow(node):
            raise InvalidDefinition(
                f"line {line} imports {module}, and a job trains Keras on torch: write `import keras` and take "
                "keras.layers, keras.ops and keras.utils from there, and numpy arrays or a DataLoader for tf.data",
                line=line,
            )


def _imports_keras(tree: ast.Module) -> bool:
    return any(name.partition(".")[0] in ("keras", "tensorflow") for each in ast.walk(tree) for name in _imported(each))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and not node.level:
        yield node.module or ""
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)


def _tensorflow(node: ast.AST) -> str | None:
    return next((name for name in _imported(node) if name.partition(".")[0] in ("tensorflow", "tf_keras")), None)


def _compiles(function: ast.AST, tree: ast.Module) -> Iterator[bool]:
    """Yield True for each call that compiles a Keras model, and False for others, in a function and those it calls."""
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
