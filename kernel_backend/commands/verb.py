"""Define a verb: the record from which the command line and `%dl` build parser, help and completion."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernel_backend.client import Client
from kernel_backend.commands.answer import Answer, Console
from kernel_backend.definition.command.programs import split_words
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.ids import ModelReference, Reference, parse_subject
from kernel_backend.model.register.records import ModelVersion
from kernel_backend.spec.limits import whole_number
from kernel_backend.spec.option_parser import OptionParser, add_options, options_for
from kernel_backend.spec.options import Candidates, Host, Option
from kernel_backend.spec.program_options import take_apart

COMMANDS = {"terminal": "daylight", "notebook": "%dl"}
USAGE_WIDTH = 40  # width of a verb with its arguments in the list of verbs


class Call:
    """Call of a verb: its arguments, and a client that connects to the service at the first use."""

    def __init__(self, arguments: argparse.Namespace, console: Console) -> None:
        self.arguments = arguments
        self.console = console

    @cached_property
    def client(self) -> Client:
        """Return a client of the service, which is started if none runs."""
        return Client.connect()

    def with_arguments(self, arguments: argparse.Namespace) -> Call:
        """Return a call with other arguments, such as those of another verb, and the same console."""
        return Call(arguments, self.console)

    @property
    def command(self) -> str:
        """Return the beginning of the command line without the arguments, such as `daylight quota` or `%dl quota`."""
        return str(self.arguments.command)

    @property
    def program(self) -> str:
        """Return the program that runs the verb: `daylight` or `%dl`."""
        return self.command.partition(" ")[0]

    @property
    def json(self) -> bool:
        """Return whether the answer is printed as JSON instead of rendered."""
        return bool(getattr(self.arguments, "json", False))

    @cached_property
    def reference(self) -> Reference:
        """Return the experiment or trial that the arguments of the call name."""
        return self.resolve(self.arguments.reference)

    def resolve(self, subject: Reference | ModelReference | str) -> Reference:
        """Return the experiment or trial that a number or a model such as `memes@production` names.

        The trial is named only if it is one of a search. Raises InvalidRequest, and NotFound for an unknown model.
        """
        found = parse_subject(subject) if isinstance(subject, str) else subject
        if isinstance(found, Reference):
            return found
        version = self.client.model_version(found)
        return Reference(version.experiment, version.trial if version.search else None)

    def version_of(self, subject: Reference | ModelReference | str) -> ModelVersion | None:
        """Return the version of a model that `subject` names; None if it names an experiment or a trial."""
        found = parse_subject(subject) if isinstance(subject, str) else subject
        return self.client.model_version(found) if isinstance(found, ModelReference) else None


@dataclass(frozen=True)
class Verb:
    """Verb (subcommand) with its arguments and examples.

    `examples` are command lines without the program's name, the most common first. `takes` says what the verb applies
    to, such as `two experiments`. An argument called `words` collects everything that matches no other argument.
    `client` and `job` name the equivalent methods of Client and of the job object.
    """

    name: str
    help: str
    run: Callable[[Call], Answer]
    arguments: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()
    takes: str = "one experiment"
    host: Host = "both"
    client: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    runs: bool = False  # what follows -- is a shell command, stored in the argument `program`

    def parser(self, host: Host = "terminal") -> OptionParser:
        """Return the verb's argument parser for the command line (`terminal`) or for `%dl` (`notebook`)."""
        program = COMMANDS[host]
        parser = OptionParser(
            prog=f"{program} {self.name}",
            description=f"{self.help[0].upper()}{self.help[1:]}.",
            epilog="\n".join(["examples:", *(f"  {program} {each}" for each in self.examples_for(host))]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_help=host == "terminal",
        )
        add_options(parser, host, self.arguments)
        parser.set_defaults(command=parser.prog)
        return parser

    def parse(self, tokens: Sequence[str], host: Host) -> argparse.Namespace:
        """Return the verb's arguments, parsed from the tokens after the verb; raises InvalidRequest.

        `host` is `terminal` or `notebook`, which have different options.
        """
        parser = self.parser(host)
        own, program = split_words(tokens) if self.runs else (tokens, None)
        if self.runs and program is None:
            own, program = take_apart(own, parser)
        try:
            found = parser.parse_mixed(own)
        except InvalidRequest as error:
            if host == "notebook" and "arguments are required" in error.message:
                raise self._miscounted(host) from None
            raise
        found.program = program
        for option in self.arguments:  # argparse takes no optional word after an option
            optional = option.kwargs.get("nargs") == "?" and not option.flags[0].startswith("-")
            if optional and found.words and getattr(found, option.dest) is None:
                setattr(found, option.dest, option.kwargs["type"](found.words.pop(0)))
        takes_words = any(option.dest == "words" for option in options_for(host, self.arguments))
        if found.words and not takes_words:
            if host == "notebook":
                raise self._miscounted(host)
            raise InvalidRequest(f"{found.words[0]!r} is one word too many; see {found.command} --help")
        return found

    def examples_for(self, host: Host) -> list[str]:
        """Return the examples whose options exist in this host (`terminal` or `notebook`)."""
        unavailable = {flag for option in self.arguments if option.host not in ("both", host) for flag in option.flags}
        if host == "notebook":
            unavailable |= {">", "|"}
        return [each for each in self.examples if not unavailable & set(each.split())] or [f"{self.name} 12"]

    def usage(self) -> str:
        """Return the verb with its arguments as one line of `%dl help`: `logs NUMBER [--rank N] [--attempt N]`."""
        words = [
            _usage(option) for option in options_for("notebook", self.arguments) if option.help != argparse.SUPPRESS
        ]
        shown = [self.name]
        for each in words:
            if len(" ".join([*shown, each])) > USAGE_WIDTH:
                return " ".join([*shown, "..."])
            shown.append(each)
        return " ".join(shown)

    def _miscounted(self, host: Host) -> InvalidRequest:
        program = COMMANDS[host]
        return InvalidRequest(f"{program} {self.name} takes {self.takes}: write {program} {self.examples_for(host)[0]}")


def _usage(option: Option) -> str:
    kwargs = option.kwargs
    value = kwargs.get("metavar") or "|".join(kwargs.get("choices", ()))
    if not option.flags[0].startswith("-"):
        return f"[{value}]" if kwargs.get("nargs") in ("?", "*") else str(value)
    words = f"{option.flags[0]} {value}" if "action" not in kwargs else option.flags[0]
    return words if kwargs.get("required") else f"[{words}]"


def argument(
    *flags: str, help: str, complete: Candidates = "", host: Host = "both", group: str = "", **kwargs: Any
) -> Option:
    """Return the declaration of a verb's argument; `kwargs` are those of `argparse.add_argument`.

    `complete` is the kind of values that completion offers, `host` says where the argument exists (`terminal`,
    `notebook` or `both`), and `group` is its heading in the help.
    """
    return Option(flags, group, help, kwargs, host=host, complete=complete)


def count(text: str) -> int:
    """Return the integer in a text; raises InvalidRequest unless it is at least 0."""
    return whole_number(text)


NUMBER = argument(
    "reference",
    help="an experiment, as 12, or a trial, as 12.1, or a model, as memes@production",
    metavar="NUMBER",
    type=parse_subject,
    complete="experiment",
)
JSON = argument("--json", help="print JSON", action="store_true", host="terminal")
