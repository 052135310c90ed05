"""Parse hyperparameter assignments: `width=64 lr=1e-4..1e-1:log act=relu,gelu momentum=0..0.9@opt=sgd`."""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Domain, Range
from kernel_backend.model.search.space import MOST_POINTS, Parameter, Space, When, problems
from kernel_backend.model.syntax import expression_tree
from kernel_backend.model.values import WORDS, TooLarge, as_value, check_value, literal

T = TypeVar("T", Range, Choices)

_LIKE_A_RANGE = re.compile(r"[^/'\"\[({]+\.\.[^/]+|[^'\"\[({]+:(log2?|int)(:\d*)?")
_RANGE = re.compile(r"(?P<low>[^:]+)\.\.(?P<high>[^:]+)(:(?P<scale>log2?))?(:(?P<count>\d+))?")
_CONDITION = re.compile(r"each|[A-Za-z_][\w.]*=.+", re.DOTALL)
_NOT_FINITE = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)
_OPENING, _CLOSING = "[({", "])}"
_OR_QUOTED = "; text that looks so goes into quotes"


class ParsedAssignments(NamedTuple):
    """Hyperparameter values and search space that the `name=value` arguments of a line give."""

    given: dict[str, Value]
    space: Space


class _Word(NamedTuple):
    """Parsed parts of one argument such as `block.kernel=3,5@each@kind=conv`."""

    token: str
    prefix: str | None  # block
    name: str
    text: str  # 3,5
    each: bool
    condition: str | None  # kind=conv

    @property
    def label(self) -> str:
        return f"{self.prefix}.{self.name}" if self.prefix else self.name


def parse_line(tokens: Iterable[str]) -> ParsedAssignments:
    """Parse `name=value` arguments into hyperparameter values and a search space.

    A value on which a condition or a list of blocks depends is added to the space as a single choice. Raises
    InvalidRequest with the invalid token and a correction.
    """
    words: dict[str, _Word] = {}
    for word in map(_taken_apart, tokens):
        if word.label in words:
            raise InvalidRequest(f"{word.token!r}: {word.label} is given twice")
        words[word.label] = word
    hung = {word.condition.partition("=")[0] for word in words.values() if word.condition}
    hung |= {f"{word.prefix}s" for word in words.values() if word.prefix}
    given: dict[str, Value] = {}
    searched: list[Parameter] = []
    for word in words.values():
        meant = _meant(word)
        if isinstance(meant, Range | Choices):
            searched.append(_parameter(word, meant))
        elif word.each or word.condition or word.name in hung:
            searched.append(_parameter(word, _checked(word.token, Choices, values=(meant,))))
        else:
            given[word.name] = meant
    for problem in problems(tuple(searched)):
        raise InvalidRequest(f"{words[problem.parameter.label].token!r}: {problem.text}")
    return ParsedAssignments(given, Space(parameters=tuple(searched)))


def parse_assignments(tokens: Iterable[str]) -> dict[str, Value]:
    """Parse `name=value` arguments into hyperparameters: numbers, booleans, none, lists, dictionaries, else text.

    Raises InvalidRequest with the invalid token: no `=`, no name, no value, a duplicate name, or a range.
    """
    tokens = list(tokens)
    line = parse_line(tokens)
    for parameter in line.space.parameters:
        token = next(token for token in tokens if token.partition("=")[0] == parameter.label)
        raise InvalidRequest(f"{token!r}: one value is wanted here; ranges and lists are for a search{_OR_QUOTED}")
    return line.given


def _taken_apart(token: str) -> _Word:
    label, equals, text = token.partition("=")
    if not equals:
        raise InvalidRequest(f"{token!r} is neither an option nor a hyperparameter: write name=value")
    names = label.split(".")
    if not all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
        raise InvalidRequest(
            f"{token!r}: {label!r} is no name of a hyperparameter; write name=value, without spaces around ="
        )
    text, hanging = _hanging(text)
    if not text:
        raise InvalidRequest(f"{token!r} has no value: write {label}=1e-2, or {label}='' for an empty text")
    conditions = [each for each in hanging if each != "each"]
    if len(conditions) > 1:
        several = f"@{conditions[0]},{conditions[1].partition('=')[2]}"
        raise InvalidRequest(f"{token!r} has two conditions: write one, with several values if need be, as {several}")
    if len(names) > 2:
        raise InvalidRequest(f"{token!r}: a block has no blocks of its own; write {names[0]}.{names[-1]}=...@each")
    each = len(conditions) < len(hanging)
    if len(names) == 2 and not each:
        raise InvalidRequest(f"{token!r}: what every block has ends with @each: write {label}={text}@each")
    if len(names) == 1 and each:
        raise InvalidRequest(f"{token!r}: @each is for what every block has: write block.{label}=... and blocks=1..6")
    prefix = names[0] if each else None
    condition = conditions[0].removeprefix(f"{prefix}.") if conditions else None
    return _Word(token, prefix, names[-1], text, each, condition)


def _hanging(text: str) -> tuple[str, list[str]]:
    """Return the value and the conditions of an argument such as `0..0.9@opt=sgd`; any other @ belongs to the value."""
    body, *behind = _split(text, "@")
    conditions: list[str] = []
    while behind and _CONDITION.fullmatch(behind[-1]):
        conditions.insert(0, behind.pop())
    return "@".join([body, *behind]), conditions


def _parameter(word: _Word, domain: Domain) -> Parameter:
    when = None
    if word.condition is not None:
        name, _, values = word.condition.partition("=")
        when = When(name=name, values=tuple(parse_value(value, word.token) for value in _several(values, word.token)))
    return Parameter(name=word.name, domain=domain, when=when, each=f"{word.prefix}s" if word.each else None)


def _meant(word: _Word) -> Value | Domain:
    values = _several(word.text, word.token)
    if len(values) > 1:
        if ranges := [each for each in values if _LIKE_A_RANGE.fullmatch(each)]:
            raise InvalidRequest(f"{word.token!r}: {ranges[0]} is a range within a list; write one or the other")
        return _checked(word.token, Choices, values=tuple(parse_value(value, word.token) for value in values))
    return _range(word) if _LIKE_A_RANGE.fullmatch(word.text) else parse_value(word.text, word.token)


def _several(text: str, token: str) -> list[str]:
    values = _split(text, ",")
    if not all(values):
        raise InvalidRequest(f"{token!r}: a list has two values or more, with commas between them: 32,64{_OR_QUOTED}")
    return values


def _range(word: _Word) -> Range:
    found = _RANGE.fullmatch(word.text)
    ends = [_number(found[end]) for end in ("low", "high")] if found else []
    if found is None or None in ends:
        form = "1e-4..1e-1, 1e-4..1e-1:log, 16..256:log2, or 1e-4..1e-1:log:5 with a count for a grid"
        raise InvalidRequest(f"{word.token!r} is no range: write two numbers, such as {form}{_OR_QUOTED}")
    count = _count(word, found["count"]) if found["count"] else None
    return _checked(
        word.token,
        Range,
        low=ends[0],
        high=ends[1],
        whole=all(isinstance(end, int) for end in ends),
        scale=found["scale"] or "linear",
        count=count,
    )


def _count(word: _Word, digits: str) -> int:
    """Parse the number of values that a grid takes from a range, as in `lr=1e-4..1e-1:log:5`.

    `digits` is its text. Raises InvalidRequest, which names the argument `word`, if it is out of bounds.
    """
    count = int(digits[:20])
    if count < 2:
        raise InvalidRequest(f"{word.token!r}: a grid has two values of a range or more")
    if count > MOST_POINTS:
        raise InvalidRequest(f"{word.token!r}: a grid has at most {MOST_POINTS:,} values of a range")
    return count


def _number(text: str) -> int | float | None:
    try:
        value = literal(expression_tree(text.strip()))
        float(value)
    except (SyntaxError, ValueError, TypeError, OverflowError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _checked(token: str, kind: type[T], **fields: Any) -> T:
    """Return a Range or Choices, as `kind` says, with these fields.

    Raises InvalidRequest if they are invalid; the message names the argument `token` from which they were parsed.
    """
    try:
        return kind(**fields)
    except ValidationError as error:
        found = error.errors()[0]
        raise InvalidRequest(f"{token!r}: {found.get('ctx', {}).get('error', found['msg'])}") from None


def parse_value(text: str, token: str | None = None) -> Value:
    """Parse one value as written on a magic line: a number, boolean, `none`, list or dictionary.

    A text that is none of these is returned as a string, without its quotes if it has any. `token` is the argument
    that the value belongs to, for messages of errors; None for `text`. Raises InvalidRequest for a list that cannot be
    parsed, and for values that JSON cannot represent, such as an integer of more than 64 bits.
    """
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    token = token or text
    try:
        if _infinite(literal(_NotFinite(0.0).visit(expression_tree(text)))):
            beyond = "more than a number can be (1.8e308): write inf if that is meant"
            raise TooLarge(f"{text} is {beyond}" if text[0] not in "[({" else f"a number in {text} is {beyond}")
        value = as_value(literal(_NotFinite().visit(expression_tree(text))))
    except TooLarge as error:
        raise InvalidRequest(f"{token!r}: {error}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        value = _text(text, token)
    try:
        check_value(value)
    except ValueError as error:
        raise InvalidRequest(f"{token!r}: {error}") from None
    return value


class _NotFinite(ast.NodeTransformer):
    """Rewriter of a syntax tree that replaces the names `inf`, `infinity` and `nan` by constants.

    This allows them in lists and dictionaries, which are parsed as literals. The constants are the floats that the
    names mean, or `number` if that is given.
    """

    def __init__(self, number: float | None = None) -> None:
        self._number = number

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the constant for a name that means infinity or NaN; other names stay, so that parsing fails."""
        if not _NOT_FINITE.fullmatch(node.id):
            return node
        return ast.Constant(float(node.id) if self._number is None else self._number)


def _infinite(value: Any) -> bool:
    if isinstance(value, dict | list | tuple):
        return any(map(_infinite, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and math.isinf(value)


def _text(text: str, token: str) -> str:
    if text[0] in "[(":
        raise InvalidRequest(f"{token!r}: this is no list of plain values; write [64,32] or ['relu','gelu']")
    quoted = text[0] in "'\"" and text[-1] == text[0] and len(text) > 1
    return text[1:-1] if quoted else text


def _split(text: str, separator: str) -> list[str]:
    """Return the parts of a text between separators outside quotes and brackets.

    A backslash within quotes escapes the next character, as in Python.
    """
    parts, quote, depth, escaped = [""], "", 0, False
    for character in text:
        if quote:
            quote = "" if character == quote and not escaped else quote
            escaped = character == "\\" and not escaped
        elif character in "'\"":
            quote = character
        else:
            depth += (character in _OPENING) - (character in _CLOSING)
        if character == separator and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
