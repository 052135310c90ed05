"""What a verb of the command line is, and how one is shown."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.ids import parse_reference
from kernel_backend.model.options import OptionParser, whole_number

OK, FAILED, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130  # exit codes

EXAMPLES = """\
  daylight submit train.py --slots 2 --epochs 10 lr=0.01 --wait
  daylight list --state running
  daylight show 12 --follow
  daylight logs 12 --rank 1 --follow
  daylight stop 12"""
NOTES = """\
Numbers: 12 is an experiment, 12.1 its first trial, 12.1-2 the second attempt of that.
Exit codes: 0 well, 1 the experiment failed, 2 wrong usage or refused, 3 no service, 130 interrupted."""


@dataclass(frozen=True)
class Verb:
    """One verb: what it is for, which words it takes, and what it does; `act` returns the exit code."""

    name: str
    help: str
    act: Callable[[argparse.Namespace], int]
    arguments: Callable[[OptionParser], object] = lambda parser: None
    examples: tuple[str, ...] = ()
    mixed: bool = False  # takes any words beside its options

    def parser(self) -> OptionParser:
        """Its own parser, for `daylight VERB --help` too."""
        parser = OptionParser(
            prog=f"daylight {self.name}",
            description=f"{self.help[0].upper()}{self.help[1:]}.",
            epilog="\n".join(["examples:", *(f"  daylight {each}" for each in self.examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.arguments(parser)
        return parser

    def run(self, tokens: Sequence[str]) -> int:
        """Parse and act; the exit code."""
        options = self.parser().parse_mixed(tokens)
        if options.words and not self.mixed:
            raise InvalidRequest(f"{options.words[0]!r} is one word too many; see daylight {self.name} --help")
        return self.act(options)


def overview_of(verbs: Iterable[Verb]) -> str:
    """The help of the whole command."""
    lines = [f"  {verb.name:<12} {verb.help}" for verb in verbs]
    head = "usage: daylight VERB ...\n\nDeep-learning infrastructure for people who live in notebooks."
    return "\n".join([head, "\nverbs:", *lines, "\nexamples:", EXAMPLES, "", NOTES])


def takes_one(parser: OptionParser) -> None:
    """A parser of a verb that is about one experiment."""
    parser.add_argument(
        "reference", metavar="NUMBER", type=parse_reference, help="an experiment, as 12, or a trial, as 12.1"
    )


def takes_json(parser: OptionParser) -> None:
    """A parser of a verb that can speak JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def count(text: str) -> int:
    """A whole number from 0 up; raises InvalidRequest."""
    return whole_number(text)
