"""Find the texts that a call prints, with `1` for each number in them, from the call's syntax tree."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from kernel_backend.definition.reported.vocabulary import COUNTERS

_OF_NUMBERS = re.compile(r".*[bdeEfFgGnoxX%]", re.DOTALL)  # format specifications that only numbers have
_PERCENT = re.compile(r"%(?:\(\w+\))?[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?([%diouxXeEfFgGcrsa])")
_NUMERIC = frozenset({"len", "int", "float", "round", "abs", "sum", "time", "item", "mean"})
_WORD = re.compile(r"[^\W\d_][\w@.%-]*(?=[\s:=(\[/,|#-]*$)")  # the last one before a value
_WHOLE, _COUNT = re.compile(r"1\s*(?:/|of)\s*$"), re.compile(r"\s*/\s*1")  # around {epoch}/{epochs}
_TOUCHES = re.compile(r"[\w@]$")
_GOES_ON = re.compile(r"\s*[:=]|[^\W\d]")  # behind what may be a name


class Gap(NamedTuple):
    """Place in a text at which a value is printed; `number` is True if it can only be a number."""

    number: bool


Part = str | Gap


def text_of(parts: Sequence[Part]) -> str | None:
    """Return the text of these parts with a number in each gap; None if a gap may hold a name.

    Examples
    --------
    >>> text_of(["loss ", Gap(False), ", acc: ", Gap(True)])
    'loss 1, acc: 1'
    >>> text_of([Gap(False), ": ", Gap(True)])
    """
    text = ""
    for index, part in enumerate(parts):
        if isinstance(part, str):
            text += part
            continue
        rest = "".join("1" if isinstance(each, Gap) else each for each in parts[index + 1 :])
        if not _holds_number(part, text, rest):
            return None
        text += "1"
    return text


def _holds_number(gap: Gap, before: str, after: str) -> bool:
    word = _WORD.search(before)
    counts = word is not None and word[0].lower() in COUNTERS  # Epoch {epoch}: loss ...
    if counts or _WHOLE.search(before) or _COUNT.match(after) or (gap.number and not _TOUCHES.search(before)):
        return True
    return word is not None and not _TOUCHES.search(before) and not _GOES_ON.match(after)


def parts_of(node: ast.expr, numbers: Collection[str]) -> list[Part]:
    """Return the parts of the text that an expression is; `numbers` are names of variables that hold numbers."""
    match node:
        case ast.Constant(value=value):
            return [str(value)]
        case ast.JoinedStr(values=values):
            return [part for each in values for part in parts_of(each, numbers)]
        case ast.FormattedValue(value=value, format_spec=spec):
            return [Gap(_is_of_numbers(spec) or is_number(value, numbers))]
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return list(_of_percent(text))
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mult()):  # a line such as "-" * 30
            return [text]
        case ast.BinOp(left=left, op=ast.Add(), right=right) if not is_number(node, numbers):
            return [*parts_of(left, numbers), *parts_of(right, numbers)]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return list(_of_format(text))
    return [Gap(is_number(node, numbers))]


def is_number(node: ast.expr, numbers: Collection[str]) -> bool:
    """Return True if an expression can only be a number, such as `len(data)`, `epoch + 1` or `loss.item()`."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Name(id=name):
            return name in numbers
        case ast.UnaryOp(operand=value):
            return is_number(value, numbers)
        case ast.BinOp(left=left, op=op, right=right):
            either = is_number(left, numbers) or is_number(right, numbers)
            return isinstance(op, ast.Div | ast.Sub | ast.Pow) or (isinstance(op, ast.Add) and either)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in _NUMERIC
    return False


def counted(trees: Sequence[ast.Module]) -> frozenset[str]:
    """Return the names of variables that count the iterations of a loop over `range` or `enumerate`."""
    found: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range" | "trange"))):
                found.add(name)
            case ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call(func=ast.Name(id="enumerate"))):
                found.add(name)
    return frozenset(found)


def percent_parts(node: ast.expr, numbers: Collection[str]) -> list[Part]:
    """Return the parts of a logger's message, whose arguments are filled in by `%`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return list(_of_percent(node.value))
    return parts_of(node, numbers)


def _is_of_numbers(spec: ast.expr | None) -> bool:
    values = spec.values if isinstance(spec, ast.JoinedStr) else []
    last = values[-1] if values else None
    return isinstance(last, ast.Constant) and _OF_NUMBERS.fullmatch(str(last.value)) is not None


def _of_percent(text: str) -> Iterator[Part]:
    end = 0
    for found in _PERCENT.finditer(text):
        yield text[end : found.start()]
        yield "%" if found[1] == "%" else Gap(found[1] not in "crsa")
        end = found.end()
    yield text[end:]


def _of_format(text: str) -> Iterator[Part]:
    try:
        for before, field, spec, _ in string.Formatter().parse(text):
            yield before
            if field is not None:
                yield Gap(_OF_NUMBERS.fullmatch(spec or "") is not None)
    except ValueError:  # Python would raise it, too
        yield text
