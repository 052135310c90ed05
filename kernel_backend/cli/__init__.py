"""Run the `daylight` command, whose verbs (subcommands) are also those of `%dl` in notebooks.

Exit codes: 0 success, 1 the experiment failed, 2 wrong usage or a refused request, 3 no service, 130 interrupted.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Sequence

from kernel_backend import __version__
from kernel_backend.cli.output import say
from kernel_backend.commands.answer import FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE
from kernel_backend.commands.verb import Call, Verb
from kernel_backend.errors import DaylightError, ExperimentFailed, HomeUnusable, InvalidRequest, ServiceUnreachable

_WIDEST = 100  # characters of a line of the help
EXAMPLES = """\
  daylight submit train.py --slots 2 --epochs 10 lr=0.01 --wait
  daylight list --state running
  daylight show 12 --follow
  daylight logs 12 --rank 1 --follow
  daylight stop 12"""
NOTES = """\
Numbers: 12 is an experiment, 12.1 its first trial, 12.1-2 the second attempt of that.
Exit codes: 0 well, 1 the experiment failed, 2 wrong usage or refused, 3 no service,
            130 interrupted."""


def verbs() -> dict[str, Verb]:
    """Return all verbs by name, in the order of the help: those shared with `%dl`, then those of the terminal only."""
    from kernel_backend.cli import backup, cluster, completion, db, doctor, open, serve, submit
    from kernel_backend.commands.table import VERBS

    found = [
        submit.SUBMIT,
        *VERBS.values(),
        serve.SERVE,
        *backup.VERBS,
        db.DB,
        open.OPEN,
        doctor.DOCTOR,
        cluster.CLUSTER,
        completion.COMPLETION,
    ]
    return {verb.name: verb for verb in found}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: that of this process), and return its exit code."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(tokens)
    except DaylightError as error:
        say(f"daylight: {error.message}")
        return _exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `daylight logs 12 | head` does not read the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _run(tokens: list[str]) -> int:
    for token in tokens:
        if not _is_text(token):
            raise InvalidRequest(f"{ascii(token)[:200]} is no UTF-8 text: Daylight takes names and words of that alone")
    known = verbs()
    if not tokens:
        print(overview_of(known.values()), file=sys.stderr)
        return USAGE
    name, *rest = tokens
    if name in ("--help", "-h", "help"):
        print(known[rest[0]].parser().format_help() if rest and rest[0] in known else overview_of(known.values()))
        return OK
    if name == "--version":
        print(f"daylight {__version__}")
        return OK
    if name not in known:
        raise _no_such_verb(name, known)
    return _carried_out(known[name], rest)


def _carried_out(verb: Verb, tokens: Sequence[str]) -> int:
    from kernel_backend.cli.render import Terminal

    arguments = verb.parse(tokens, "terminal")
    console = Terminal(arguments)
    return console.show(verb.run(Call(arguments, console)))


def overview_of(verbs: Collection[Verb]) -> str:
    """Return the help text of the command `daylight`, which lists the verbs."""
    from kernel_backend.commands.table import listing

    head = "usage: daylight VERB ...\n\nDeep-learning infrastructure for people who live in notebooks."
    lines = listing(verbs, lambda verb: verb.name, min(shutil.get_terminal_size().columns, _WIDEST))
    return "\n".join([head, *lines, "\nexamples:", EXAMPLES, "", NOTES])


def _is_text(token: str) -> bool:
    """Return whether an argument is valid UTF-8 without null characters, so that it can be sent and stored."""
    try:
        token.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in token


def _no_such_verb(name: str, known: dict[str, Verb]) -> InvalidRequest:
    from kernel_backend.model.values import nearest

    return InvalidRequest(f"there is no verb {name}{nearest(name, known)}; see daylight --help")


def _exit_code(error: DaylightError) -> int:
    if isinstance(error, ServiceUnreachable | HomeUnusable):
        return UNREACHABLE
    if isinstance(error, ExperimentFailed):
        return FAILED
    return USAGE if error.http_status < 500 else FAILED
