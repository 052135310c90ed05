"""Parse options and `name=value` arguments that are mixed in any order, and suggest what an unknown option may mean."""

from __future__ import annotations

import argparse
import difflib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.search.methods import BUILT_IN
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.registry import names
from kernel_backend.spec.options import OPTIONS, Host, Option
from kernel_backend.spec.other_tools import instead

# Similarity from which an option is suggested (--lr is not --rng), and from which it is certainly meant.
_NEAR, _SURELY = 0.7, 0.85


class OptionParser(argparse.ArgumentParser):
    """Argument parser that raises InvalidRequest for errors, and accepts no abbreviated options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    @property
    def known(self) -> Mapping[str, argparse.Action]:
        """Return the options that this parser knows, by flag."""
        return self._option_string_actions

    def format_help(self) -> str:
        """Return the help text, with the names of all search methods filled in, including those of other packages."""
        for action in self._actions:
            if action.help and "{methods}" in action.help:  # filled in only here, as listing the methods takes time
                action.help = action.help.replace("{methods}", _methods())
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise InvalidRequest instead of exiting the process."""
        raise InvalidRequest(f"{message.removeprefix('argument ')}; see {self.prog} --help")

    def parse_mixed(self, tokens: Sequence[str]) -> argparse.Namespace:
        """Parse options in any place, and collect all other arguments in written order in the attribute `words`.

        Raises InvalidRequest for an unknown option, and for an option without a value.
        """
        namespace, unknown = self.parse_telling(tokens)
        if unknown:
            raise InvalidRequest("\n".join(unknown))
        return namespace

    def parse_telling(self, tokens: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Parse like `parse_mixed`, but return messages about unknown options instead of raising.

        Raises InvalidRequest for a known option without a value.
        """
        for token in tokens:
            if _is_option(token) and token.endswith("=--"):  # argparse raises an internal error for it
                raise InvalidRequest(f"{token}: -- is no value; see {self.prog} --help")
        namespace, rest = self.parse_known_args(tokens)
        unknown = [
            _unknown(token, after, self.known).replace(*_verbs_of(self.prog))
            for token, after in zip(rest, [*rest[1:], ""], strict=False)
            if _is_option(token)
        ]
        if unknown and (way := _as_command(tokens, rest)):
            unknown.append(way)
        # The word after an unknown option is taken as its value.
        kept = [
            token
            for token, before in zip(rest, ["", *rest], strict=False)
            if not _is_option(token) and ("=" in token or not _is_option(before) or "=" in before)
        ]
        namespace.words = [*(getattr(namespace, "words", None) or ()), *kept]
        return namespace, unknown


def _is_option(token: str) -> bool:
    return token.startswith("-") and token != "-"


def _as_command(tokens: Sequence[str], unknown: Sequence[str]) -> str:
    """Return how to give a program the unknown options behind it, as some are declared by no name; "" without any.

    Examples
    --------
    >>> _as_command(["train.py", "--output_dir", "out"], ["train.py", "--output_dir", "out"])
    'for options of train.py itself write -- python train.py --output_dir out'
    """
    at = next((index for index, each in enumerate(tokens) if each.endswith(".py") and "=" not in each), None)
    if at is None or not any(_is_option(each) and each in unknown for each in tokens[at:]):
        return ""
    return f"for options of {tokens[at]} itself write -- python {shlex.join(tokens[at:])}"


def _unknown(token: str, after: str, known: Mapping[str, Any]) -> str:
    """Return a message about an unknown option, with the most similar option if there is one.

    `after` is the next word on the line, and `known` has the valid options. An option of another tool is answered with
    what to write here. If a value follows, the option may have been meant as a hyperparameter, and the message says how
    to write that.
    """
    name, _, value = token.partition("=")
    value = value or ("" if _is_option(after) or "=" in after else after)
    word = name.lstrip("-").replace("-", "_")
    if line := instead(name, value, known):
        return f"there is no option {name}: write {line}"
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=_NEAR)
    ways = [f"did you mean {near[0]}?"] if near else []
    sure = bool(difflib.get_close_matches(name, near, cutoff=_SURELY))
    if value and word.isidentifier() and not sure:
        ways.append(f"a hyperparameter is written {word}={value}, by its name in the cell")
    return f"there is no option {name}: {' Else: '.join(ways) or 'see --help for those there are'}"


def _verbs_of(program: str) -> tuple[str, str]:
    """Return what to replace, by what, in a message with verbs of `%dl`: a terminal's are those of `daylight`."""
    return ("%dl ", "daylight " if program.startswith("daylight") else "%dl ")


def _methods() -> str:
    """Return the names of all search methods, also those of packages: `random, grid, asha, ... or custom:NAME`."""
    own = {method.name for method in BUILT_IN if method.own_class}
    others = [name for name in names() if name not in own and name != Search().method]
    return f"{', '.join(others)}, or {' or '.join(sorted(own))}:NAME of a class in the cell"


def options_for(host: Host, options: Iterable[Option] = OPTIONS) -> tuple[Option, ...]:
    """Return the options of a magic (`notebook`) or of the command line (`terminal`)."""
    return tuple(option for option in options if option.host in ("both", host))


def add_options(parser: argparse.ArgumentParser, host: Host, options: Iterable[Option] = OPTIONS) -> None:
    """Add the options of `host` to `parser`, in their groups."""
    groups: dict[str, Any] = {"": parser}
    for option in options_for(host, options):
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        groups[option.group].add_argument(*option.flags, help=option.help, **option.kwargs)
