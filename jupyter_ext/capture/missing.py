"""Define names that no executed cell binds: by a line with the current value if it is small, or by an import.

Values that look like secrets are never written.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, field

from jupyter_ext.capture.executed import Executed
from jupyter_ext.capture.makers import maker
from jupyter_ext.capture.slice import Slice
from kernel_backend.secret_scan import find_secrets, is_secret, known_secrets

_SMALL = 2048  # maximum length of a literal that is written into the module
OF_NOTEBOOKS = {"get_ipython", "In", "Out", "exit", "quit", "_", "__", "___"}
_DISPLAY = "from IPython.display import display"  # prints if there is no notebook


@dataclass
class WrittenLines:
    """Lines for the captured module that define names which no executed cell binds, with warnings for the user.

    `left` has the names for which no line could be written; they stay undefined.
    """

    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def written_in(sliced: Slice, namespace: Mapping[str, object] | None, executed: Executed) -> WrittenLines:
    """Return module lines that define the names in `sliced.missing`, from their current values in the notebook.

    If `from x import *` bound a missing name, those imports are added to the slice instead. Values that a magic may
    have set are not written, since the magic may set other values on its next run.
    """
    written = WrittenLines()
    if sliced.missing and sliced.history.stars and _from_stars(sliced, namespace):
        sliced.take_stars()
    for name in list(sliced.missing):
        if name == "display":
            written.lines.append(_DISPLAY)
            continue
        line = _line(name, namespace, may_be_value=maker(name, executed) is None)
        if line is None:
            written.left.append(name)
        elif line:
            written.lines.append(line)
            written.warnings.append(f"'{name}' is made by no executed cell; it was written in as: {_short(line)}")
    return written


def _from_stars(sliced: Slice, namespace: Mapping[str, object] | None) -> bool:
    """Remove from `sliced.missing` the names that `from x import *` bound; return True if there were any.

    Without a `namespace`, star imports may have bound all of them.
    """
    modules = [
        sys.modules.get(node.module or "")
        for time in sliced.history.stars
        for node in sliced.history.executed[time].nodes
        if isinstance(node, ast.ImportFrom)
    ]
    made = [
        name
        for name in sliced.missing
        if namespace is None or (name in namespace and any(hasattr(module, name) for module in modules))
    ]
    for name in made:
        del sliced.missing[name]
    return bool(made)


def _line(name: str, namespace: Mapping[str, object] | None, may_be_value: bool) -> str | None:
    if namespace is None or name not in namespace or name in OF_NOTEBOOKS:
        return None
    value = namespace[name]
    if isinstance(value, types.ModuleType):
        return f"import {name}" if value.__name__ == name else f"import {value.__name__} as {name}"
    if (source := _importable(value)) is not None:
        module, own = source
        return f"from {module} import {own}" if own == name else f"from {module} import {own} as {name}"
    text = _literal(value) if may_be_value and not is_secret(name, value) else None
    if text is None or find_secrets(f"{name} = {text}", known_secrets()):
        return None
    return f"{name} = {text}"


def _importable(value: object) -> tuple[str, str] | None:
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) or not module or not name:
        return None
    found = getattr(sys.modules.get(module), name, None)
    return (module, name) if module != "__main__" and found is value else None


def _literal(value: object) -> str | None:
    if not isinstance(value, bool | int | float | str | list | dict | tuple | None):
        return None
    text = repr(value)
    try:
        same = len(text) <= _SMALL and ast.literal_eval(text) == value
    except (SyntaxError, ValueError, RecursionError):
        return None
    return text if same else None


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
