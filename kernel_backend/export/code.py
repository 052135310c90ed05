"""Cut out of a training definition what a model needs of it: its classes, functions, imports and constants."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from kernel_backend.definition.script.bindings import changed_by
from kernel_backend.definition.script.loops import training_statements
from kernel_backend.definition.unused import names_used
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.syntax import FunctionNode

VALUES = "values.safetensors"  # tensors and arrays that the definition reads
_MOST_TEXT = 100_000  # characters of a value that is written as Python
_DEFINING = (*FunctionNode.__args__, ast.ClassDef, ast.Import, ast.ImportFrom)
_HEAD = '''"""What the model of this folder needs of the code that trained it; see README.md."""

'''
_READS = """from pathlib import Path as _Path

from safetensors.torch import load_file as _load_file

_values = _load_file(_Path(__file__).with_name("values.safetensors"))

"""


class Code(NamedTuple):
    """Source of an exported model's definition, with the tensors that it reads by name."""

    source: str
    tensors: dict[str, Any]


def needed_code(source: str, needed: set[str], values: Mapping[str, Any]) -> Code:
    """Return the part of a training definition that binds the names `needed`, with what that part reads in turn.

    A name that holds a computed number, text, container or tensor is written with its value, taken from `values`: so
    the part reads no data of the training. Raises InvalidRequest if a name is changed by the training itself.

    Examples
    --------
    >>> text = "import torch\\nchars = len(open('data').read())\\ndef net(n=3): return torch.nn.Linear(n, chars)\\n"
    >>> print(needed_code(text, {"net"}, {"chars": 65}).source.split('"\\n\\n')[1])
    import torch
    chars = 65
    <BLANKLINE>
    <BLANKLINE>
    def net(n=3): return torch.nn.Linear(n, chars)
    <BLANKLINE>
    """
    tree = ast.parse(source)
    trains = training_statements(tree)
    lines = source.splitlines()
    counts = Counter(line for each in tree.body for line in {each.lineno, each.end_lineno})
    shared = {line for line, count in counts.items() if count > 1}  # lines of several statements
    wanted, kept = set(needed), dict[int, str]()
    tensors: dict[str, Any] = {}
    grown = True
    while grown:
        grown = False
        for number, each in enumerate(tree.body):
            names = changed_by(each) & wanted
            if number in kept or not (names or _always(each)):
                continue
            grown = True
            text = None if isinstance(each, _DEFINING) else _valued(names, values, tensors)
            if text is None:
                if each in trains:
                    raise InvalidRequest(
                        f"the model's code reads {', '.join(sorted(names))}, which the training changes (line "
                        f"{each.lineno}): give it to the model as an attribute"
                    )
                text = _text(each, lines, shared)
                wanted |= names_used(ast.Module([each], []))
            kept[number] = text
    body = "".join(f"{kept[number]}\n" for number in sorted(kept))
    future = [text for number, text in kept.items() if text.startswith("from __future__")]
    for text in future:
        body = body.replace(f"{text}\n", "", 1)
    head = "".join(f"{text}\n\n" for text in future)
    body = re.sub(r"\n{4,}", "\n\n\n", body).strip("\n")
    return Code(f"{_HEAD}{head}{_READS if tensors else ''}{body}\n", tensors)


def _always(statement: ast.stmt) -> bool:
    """Return True for imports that say neither which names they bind, nor that nothing depends on them."""
    if not isinstance(statement, ast.ImportFrom):
        return False
    return statement.module == "__future__" or any(each.name == "*" for each in statement.names)


def _text(statement: ast.stmt, lines: Sequence[str], shared: Collection[int | None]) -> str:
    """Return a statement as it is written, with its decorators and comments, and lines around a definition."""
    if {statement.lineno, statement.end_lineno} & set(shared):
        return ast.unparse(statement)
    decorators = getattr(statement, "decorator_list", [])
    first = min(statement.lineno, *(each.lineno for each in decorators)) if decorators else statement.lineno
    text = "\n".join(lines[first - 1 : statement.end_lineno])
    return f"\n\n{text}\n\n" if isinstance(statement, FunctionNode | ast.ClassDef) else text


def _valued(names: set[str], values: Mapping[str, Any], tensors: dict[str, Any]) -> str | None:
    """Return statements that bind `names` to their values, in place of what computed them; None if one has none."""
    lines = []
    for name in sorted(names):
        value = values.get(name, _valued)
        if _is_array(value):
            tensors[name] = value
            lines.append(f'{name} = _values["{name}"]' + (".numpy()" if type(value).__name__ == "ndarray" else ""))
            continue
        text = repr(value)
        if len(text) > _MOST_TEXT or not _is_literal(text, value):
            return None
        lines.append(f"{name} = {text}")
    return "\n".join(lines)


def _is_array(value: Any) -> bool:
    kind = type(value)
    if (kind.__module__, kind.__qualname__) == ("numpy", "ndarray"):
        return bool(value.dtype.kind in "biuf")
    return (kind.__module__, kind.__qualname__) == ("torch", "Tensor")


def _is_literal(text: str, value: Any) -> bool:
    try:
        return type(read := ast.literal_eval(text)) is type(value) and bool(read == value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False
