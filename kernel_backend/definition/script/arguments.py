"""Parse a program's command line as argparse does: its options have values or placeholders of hyperparameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kernel_backend.definition.command_line import Command
from kernel_backend.definition.script.hyperparameters import Constants
from kernel_backend.definition.script.options import OptionPlace, flags_of, options
from kernel_backend.definition.script.written import Place, Put

_PLACEHOLDER = re.compile(r"(?<!\{)\{([A-Za-z_]\w*)\}")
_NUMBER = re.compile(r"-\d+|-\d*\.\d+")  # which argparse treats as a value, not as an option
_NO = "--no-"  # of argparse.BooleanOptionalAction


@dataclass(frozen=True)
class Arguments:
    """Command-line arguments of a program, and the hyperparameters whose values are written into them.

    `found` has all hyperparameters of the program, with values of the command line as defaults; `words` are the
    arguments.
    """

    found: Constants
    words: list[str | None]  # None: left out
    by_option: Mapping[str, Place]  # hyperparameters by the names of their options


class _Use(NamedTuple):
    """Occurrence of one of the program's options on a command line, such as `--lr 0.1` or `--lr=0.1`.

    `words` are the indices of the command-line arguments that it consists of, and `text` is its value.
    """

    option: OptionPlace
    text: str | None  # None for a switch, which has no value
    words: range
    head: str  # beginning of the argument that holds the value, such as `--lr=`
    on: bool = True  # of a switch


def arguments(tree: ast.Module, found: Constants, command: Command) -> Arguments:
    """Return the command-line arguments and hyperparameters of a program that a command starts.

    `found` has the hyperparameters in the program's source, including the defaults of its argparse options. A value on
    the command line replaces an option's default. A placeholder such as `{lr}` is a hyperparameter of this name, with
    the type of its option. An option whose value on the command line is not a plain value is not a hyperparameter: the
    program gets the text unchanged.
    """
    words: list[str | None] = list(command.words[command.arguments :])
    places, refused, by_option = dict(found.places), dict(found.refused), dict[str, Place]()
    line = tree.body[-1].lineno
    for name in command.names:
        places[name] = Place(name, line, _nothing, None, written=f"{{{name}}}", required=True)
    for use in _uses(list(options(tree)), flags_of(tree), command.words[command.arguments :]):
        option = use.option
        placeholder = _PLACEHOLDER.fullmatch(use.text) if use.text is not None else None
        own = places.get(option.name)
        if placeholder is not None:
            annotation = (option.annotation or "").removesuffix(" | None")
            kind = None if annotation in ("", "str") else annotation  # any value has a text
            place = Place(placeholder[1], option.line, _nothing, None, kind, use.text or "", required=True)
            places[place.name] = by_option[option.name] = place
            if place.name != option.name and isinstance(own, OptionPlace):
                del places[option.name]
                refused[option.name] = f"{option.name} is {use.text} in the command: write {place.name}=VALUE"
        elif isinstance(own, OptionPlace) and own.flags == option.flags:
            try:
                value = use.on if use.text is None else _value(own, use.text)
            except ValueError:
                del places[option.name]
                refused[option.name] = (
                    f"{option.name} is {option.written} {use.text} in the command: write {{{option.name}}} there, and "
                    f"{option.name}=VALUE before the --"
                )
            else:
                put = _writer(words, use, option.put)
                places[option.name] = replace(own, default=value, required=False, put=put)
    ordered = dict(sorted(places.items(), key=lambda item: item[1].line))
    return Arguments(Constants(ordered, refused), words, by_option)


def _uses(found: Sequence[OptionPlace], known: set[str], words: Sequence[str]) -> Iterator[_Use]:
    """Yield the options that a command line sets, in order.

    `found` are the program's options whose defaults are known, `known` has the flags of all its options, and `words`
    are the command-line arguments.
    """
    flags = {flag: each for each in found for flag in each.flags}
    negative = {f"{_NO}{flag[2:]}": each for flag, each in flags.items() if each.switch and flag.startswith("--")}
    index = 0
    while index < len(words) and words[index] != "--":
        word, begin = words[index], index
        index += 1
        flag, equals, text = word.partition("=") if word.startswith("--") else (word, "", "")
        if flag not in flags and word.startswith("-") and not word.startswith("--") and word[:2] in flags:
            flag, equals, text = word[:2], word[:2], word[2:]  # -e5
        near = [flag] if flag in known else [each for each in known if _abbreviates(flag, each)]
        if flag in negative and not near:
            yield _Use(negative[flag], None, range(begin, index), "", on=False)
        if len(near) != 1 or near[0] not in flags:
            continue
        option = flags[near[0]]
        if option.switch:
            yield _Use(option, None, range(begin, index), "", on=option.default is not True)
        elif equals:
            yield _Use(option, text, range(begin, index), word.removesuffix(text))
        elif index < len(words) and (not words[index].startswith("-") or _NUMBER.fullmatch(words[index])):
            index += 1
            yield _Use(option, words[begin + 1], range(begin, index), "")


def _abbreviates(flag: str, full: str) -> bool:
    return flag.startswith("--") and len(flag) > 2 and full.startswith(flag)


def _value(option: OptionPlace, text: str) -> Any:
    """Return a text as an option's value, converted as argparse does; raises ValueError for an unknown conversion."""
    kind = (option.annotation or "").removesuffix(" | None")
    if kind.startswith("Literal["):
        choices = ast.literal_eval(kind.removeprefix("Literal"))
        return {str(each): each for each in choices}[text] if text in map(str, choices) else _unknown(text)
    convert = {"float": float, "int": int, "str": str}.get(kind, _unknown)
    return convert(text) if "{" not in text else _unknown(text)


def _unknown(text: str) -> Any:
    raise ValueError(text)


def _writer(words: list[str | None], use: _Use, default: Put) -> Put:
    """Return a function that writes a hyperparameter's value into the command-line arguments `words`, at `use`.

    If the value is None, or the option is a switch, it removes the option from `words`, and calls `default` to write
    the value into the program, as the default in the option's declaration.
    """

    def put(value: ast.expr) -> None:
        none = isinstance(value, ast.Constant) and value.value is None
        if use.text is None or none:
            words[use.words.start : use.words.stop] = [None] * len(use.words)
            default(value)
        else:
            words[use.words[-1]] = use.head + _text(value)

    return put


def _text(value: ast.expr) -> str:
    """Return a literal's value as the text of a command-line argument.

    Examples
    --------
    >>> [_text(ast.parse(each, mode="eval").body) for each in ("-0.5", "'adam'", "float('inf')")]
    ['-0.5', 'adam', 'inf']
    """
    if isinstance(value, ast.Call):
        return _text(value.args[0])
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ast.unparse(value)


def _nothing(value: ast.expr) -> None:
    """Write nothing into the program: a placeholder such as `{lr}` is filled into the command line instead."""
