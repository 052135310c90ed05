"""Read the line of `%%dlsubmit` or `%%dlrun`: its options, and the cell, file or command that it submits."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_ext.magics.line import separated, words
from jupyter_ext.submit.submit import ParsedLine, read
from jupyter_ext.submit.submit_file import Source, source_of
from kernel_backend.definition.plain import marked
from kernel_backend.errors import InvalidRequest
from kernel_backend.spec.option_parser import OptionParser, add_options
from kernel_backend.spec.program_options import take_apart
from kernel_backend.text.terminal import tell


@dataclass(frozen=True)
class Request:
    """Submission that a magic's line asks for; either `cell` or `source` is given."""

    line: str
    options: argparse.Namespace
    asked: ParsedLine
    cell: str | None  # the text below the line
    source: Source | None  # a file or command
    plain: bool  # the cell is run as it is, by `%%dlrun`

    @property
    def named(self) -> str:
        """Return what is submitted, for a message: `this cell`, or the file."""
        return "this cell" if self.source is None else self.source.shown or "this command"

    @property
    def written(self) -> str:
        """Return the beginning of the line that submits it: `%%dlsubmit`."""
        if self.source is not None:
            return f"%dlsubmit {self.source.shown}".rstrip()
        back = f" --back {self.options.back}" if self.plain and self.options.back else ""
        return f"{'%%dlrun' if self.plain else '%%dlsubmit'}{back}"


def submit_parser() -> OptionParser:
    """Return the parser of the line of `%%dlsubmit`."""
    return _parser(
        prog="%%dlsubmit",
        usage="%%%%dlsubmit [options] [name=value ...]\n       %%dlsubmit [options] FILE.py [name=value ...]\n"
        "       %%dlsubmit [options] [name=value ...] -- COMMAND",
        description="Submit this cell, with what it needs of the others, or a file as an experiment.",
        epilog="name=value sets a hyperparameter: an argument of the cell's functions, such as lr=1e-2.",
    )


def run_parser() -> OptionParser:
    """Return the parser of the line of `%%dlrun`."""
    parser = _parser(
        prog="%%dlrun",
        usage="%%%%dlrun [options]",
        description="Run this cell once as it is, in a job of one process, with what it needs of the others.",
        epilog="job.result() returns the value of its last expression, job.result('x') a variable of --back x.",
    )
    parser.add_argument("--back", metavar="NAMES", default="", help="variables to bring back, such as model,scores")
    return parser


def _parser(**texts: str) -> OptionParser:
    parser = OptionParser(add_help=False, formatter_class=argparse.RawDescriptionHelpFormatter, **texts)
    add_options(parser, "notebook")
    parser.add_argument("--help", "-h", action="store_true", help="show this")
    parser.set_defaults(words=[])
    return parser


def read_request(parser: OptionParser, line: str, cell: str | None, held: Mapping[str, Any]) -> Request | None:
    """Return what a magic's line asks for; None if it asked for help, which is printed.

    `held` are the notebook's variables, whose values stand for `$name`. Raises InvalidRequest if nothing, or both a
    cell and a command, are submitted. Other faults are collected, to be told with those of the definition.
    """
    own, program = separated(line)
    tokens = words(own, held)
    if cell is None and program is None:
        tokens, program = take_apart(tokens, parser)
    options, wrong = parser.parse_telling(tokens)
    if options.help:
        tell(parser.format_help().rstrip())
        return None
    if cell is not None and program is not None:
        raise InvalidRequest("a command needs no cell: write %dlsubmit ... -- python train.py on a line of its own")
    if cell is None and program is None and all("=" in word for word in options.words):
        raise InvalidRequest(
            "nothing to submit: write functions below %%dlsubmit, name a file: %dlsubmit train.py, or a command: "
            "%dlsubmit -- python train.py"
        )
    plain = cell is not None and "back" in options
    if cell is not None and plain:
        cell = marked(cell, _names(options.back, wrong))
        wrong += _of_trainings(options)
    source = source_of(options, program) if cell is None else None
    if options.out and not options.out.isidentifier():
        wrong.append(f"--out {options.out}: this is no name of a variable")
    return Request(line, options, read(options, wrong), cell, source, plain)


def _names(text: str, wrong: list[str]) -> list[str]:
    names = [each for each in text.split(",") if each]
    wrong += [f"--back {each}: this is no name of a variable" for each in names if not each.isidentifier()]
    return names


def _of_trainings(options: argparse.Namespace) -> list[str]:
    """Return what is wrong with the options of a cell that is run as it is: those that only a training has."""
    flag = "--local" if options.local else "--as-script" if options.as_script else None
    why = f"{flag} is for what Daylight trains, and %%dlrun runs the cell as it is: leave {flag} out"
    return [why] if flag else []
