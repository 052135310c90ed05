"""Tell a program's own options from those of a submission, in a line such as `train.py --slots 2 --lr 0.01`."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_backend.definition.command.programs import starts_program
from kernel_backend.definition.contract import REQUIRED
from kernel_backend.definition.options import OF_PROGRAMS
from kernel_backend.definition.script.options import flags_of, options
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.syntax import FunctionNode, module_tree
from kernel_backend.spec.option_parser import OptionParser

LARGEST = 1_000_000  # bytes of a program that is read for its options
_NUMBER = re.compile(r"-\.?\d.*")
_LENGTH = "--epochs"  # means the same to both


class _Option(NamedTuple):
    """Option on a line, with the words of its value."""

    flag: str
    words: list[str]


def take_apart(words: Sequence[str], parser: OptionParser) -> tuple[list[str], list[str] | None]:
    """Split a submission line into its own words and the command that its file becomes by options of its own.

    A word such as `python` or `torchrun` begins the command. Options behind a file are the program's if it declares
    them with argparse, unless Daylight has them, too, for programs. The command is None if there are none. Raises
    InvalidRequest for an option that both have.
    """
    at = _place_of_program(words, parser)
    if at is not None and starts_program(words[at]):
        return list(words[:at]), list(words[at:])
    tree = _tree(Path(words[at])) if at is not None else None
    flags = flags_of(tree) if tree is not None else set()
    if at is None or tree is None or not flags:
        return list(words), None
    counts: dict[str, int | None] = dict.fromkeys(flags)  # None: as many as there are
    counts |= {flag: 0 if each.switch else 1 for each in options(tree) for flag in each.flags}
    own, found = _found(words[at + 1 :], counts)
    both = [each for each in found if each.flag in parser.known and parser.known[each.flag].dest not in OF_PROGRAMS]
    for each in both:
        if each.flag != _LENGTH:
            file, written = words[at], " ".join(each.words)
            raise InvalidRequest(
                f"{each.flag} is an option of Daylight and of {file}: write {written} {file} for Daylight's, or "
                f"-- python {file} {written} for the program's"
            )
    if len(found) == len(both):
        return list(words), None
    return [*words[:at], *own], [words[at], *(word for each in found for word in each.words)]


def _place_of_program(words: Sequence[str], parser: OptionParser) -> int | None:
    """Return the index of the first word that names a program and is no option's value; None if there is none."""
    index = 0
    while index < len(words):
        action = parser.known.get(words[index])
        if action is not None:
            index += _values(action)
        elif _names_program(words[index]):
            return index
        index += 1
    return None


def _names_program(word: str) -> bool:
    """Return True for a Python file, and for a word such as `python` that starts a program."""
    if word.endswith(".py"):
        return "=" not in word and not word.startswith("-")
    return starts_program(word) and not Path(word).exists()


def _values(action: argparse.Action) -> int:
    return action.nargs if isinstance(action.nargs, int) else 1


def _tree(file: Path) -> ast.Module | None:
    """Return the syntax tree of a program; None if it cannot be read, is too large, or is a definition of functions."""
    try:
        tree = module_tree(file.read_bytes()) if file.stat().st_size <= LARGEST else None
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    names = {each.name for each in tree.body if isinstance(each, FunctionNode)} if tree is not None else set[str]()
    return None if names.issuperset(REQUIRED) else tree


def _found(words: Sequence[str], counts: Mapping[str, int | None]) -> tuple[list[str], list[_Option]]:
    """Return the words of a line that are no options of the program, and its options with their values.

    `counts` has the number of words that each option of the program takes.
    """
    rest, found = list[str](), list[_Option]()
    index = 0
    while index < len(words):
        flag, equals, _ = words[index].partition("=")
        begin, index = index, index + 1
        if not flag.startswith("-") or flag not in counts:
            rest.append(words[begin])
            continue
        most = 0 if equals else counts[flag]
        while index < len(words) and (most is None or index - begin <= most) and _is_value(words[index], most):
            index += 1
        found.append(_Option(flag, list(words[begin:index])))
    return rest, found


def _is_value(word: str, most: int | None) -> bool:
    option = word.startswith("-") and not _NUMBER.fullmatch(word)
    return not option and (most is not None or "=" not in word)
