"""Choose the frameworks that a forkserver imports besides torch, by the imports in the user's code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import MappingProxyType

from kernel_backend.definition.keras.cell import is_keras
from kernel_backend.definition.keras.fit import keras_fit

# The module to preload for each package that a definition imports. Each takes seconds to import; importing it earlier
# does not change results.
FRAMEWORKS: Mapping[str, str] = MappingProxyType(
    {
        "lightning": "lightning.pytorch",
        "pytorch_lightning": "pytorch_lightning",
        "keras": "keras",
        "transformers": "transformers.trainer",
        "torchmetrics": "torchmetrics",
        "sklearn": "sklearn.base",
    }
)
# Packages whose import opens no GPU. The others open one, or may, which would be unusable after the fork.
_LEAVE_GPUS = frozenset({"lightning", "pytorch_lightning"})
_VARIABLES: Mapping[str, Mapping[str, str]] = MappingProxyType({"keras": {"KERAS_BACKEND": "torch"}})


def frameworks(code: Path, cwd: Path, gpus: bool = False) -> tuple[str, ...]:
    """Return the names of the framework modules that a forkserver should import before it forks ranks.

    They are those that the user's code in the folder `code` imports. With `gpus` (ranks compute on GPUs), only modules
    whose import opens no GPU are returned. The result is empty if the code sets environment variables, which the
    imports might read. A framework is left out if `code` or `cwd` has a module of its name.
    """
    try:
        source = (code / "definition.py").read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):  # the ranks report the error
        return ()
    if "environ" in source or "putenv" in source:
        return ()
    names = {name for node in tree.body for name in _imported(node)}
    if gpus:
        names &= _LEAVE_GPUS
    trains_keras = is_keras(tree, roles_from=1) or keras_fit(tree, roles_from=1) is not None
    if not trains_keras or "tensorflow" in source:  # the code may use Keras on another backend
        names -= {"keras"}
    if "Trainer" not in source:
        names -= {"transformers"}
    own = [str(code), str(cwd)]
    return tuple(
        module for name, module in FRAMEWORKS.items() if name in names and PathFinder.find_spec(name, own) is None
    )


def framework_variables(modules: Iterable[str]) -> dict[str, str]:
    """Return the environment variables that must be set when these framework modules are imported."""
    return {name: value for module in modules for name, value in _VARIABLES.get(module, {}).items()}


def _imported(node: ast.stmt) -> list[str]:
    """Return the names of the packages that a top-level statement imports."""
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").partition(".")[0]] if not node.level else []
    return [each.name.partition(".")[0] for each in node.names] if isinstance(node, ast.Import) else []
