"""Split the line of a magic into tokens, and evaluate `{expression}` in the notebook."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping

from kernel_backend.errors import InvalidRequest

_OPENING, _CLOSING = "[({", "])}"
_OPTION = re.compile(r"(--?[\w-]+=)(.+)", re.DOTALL)
_SEPARATOR = re.compile(r"(?:^|(?<=\s))--(?=\s|$)")
_EXPRESSION = re.compile(r"\{([^{}]+)\}")


def words(line: str, namespace: Mapping[str, object]) -> list[str]:
    """Split a line at spaces outside quotes and brackets; `{rate}` in `lr={rate}` is replaced by the variable's value.

    Quotes around an option's value are removed; those in `name='a b'` stay, since they mark a string. Raises
    InvalidRequest for an unclosed quote, and for an expression that cannot be evaluated.
    """
    return [_expanded(_unquoted(word), namespace) for word in _split(line)]


def separated(line: str) -> tuple[str, list[str] | None]:
    """Split a line at a `--` outside quotes; return the part before it, and the arguments of the command after it.

    The command is split as in a shell; it is None if there is no such `--`. Raises InvalidRequest for an unclosed
    quote.
    """
    for found in _SEPARATOR.finditer(line):
        if not _is_open(line[: found.start()]):
            try:
                return line[: found.start()], shlex.split(line[found.end() :])
            except ValueError as error:
                raise InvalidRequest(f"{line[found.start() :]}: {str(error).lower()}") from None
    return line, None


def _is_open(text: str) -> bool:
    """Return whether a text has an unclosed quote."""
    try:
        _split(text)
    except InvalidRequest:
        return True
    return False


def _split(line: str) -> list[str]:
    found, word, quote, depth = list[str](), "", "", 0
    for character in line:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character.isspace() and depth == 0:
            found, word = ([*found, word] if word else found), ""
            continue
        else:
            depth = max(0, depth + (character in _OPENING) - (character in _CLOSING))
        word += character
    if quote:
        raise InvalidRequest(f"{word!r}: this quote is not closed")
    return [*found, word] if word else found


def _unquoted(word: str) -> str:
    if option := _OPTION.fullmatch(word):
        return option[1] + _unquoted(option[2])
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "'\""
    return word[1:-1] if quoted else word


def _expanded(word: str, namespace: Mapping[str, object]) -> str:
    def value(found: re.Match[str]) -> str:
        if _is_dictionary(found[0]):
            return found[0]  # a dictionary, not an expression: blocks=[{'kind':'conv'}]
        try:
            return str(eval(found[1], {}, dict(namespace)))
        except Exception as error:  # any error of the expression is shown to the user
            raise InvalidRequest(f"{found[0]} cannot be filled in: {type(error).__name__}: {error}") from None

    return _EXPRESSION.sub(value, word)


def _is_dictionary(text: str) -> bool:
    try:
        return isinstance(ast.literal_eval(text), dict)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False
