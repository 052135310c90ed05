"""The `daylight` command: the same verbs as in the notebook.

Exit codes: 0 well, 1 the experiment failed, 2 wrong usage or a refused request, 3 no service, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from kernel_backend import __version__
from kernel_backend.cli.output import say
from kernel_backend.cli.verb import FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE, Verb, overview_of
from kernel_backend.errors import DaylightError, ExperimentFailed, HomeUnusable, InvalidRequest, ServiceUnreachable


def verbs() -> dict[str, Verb]:
    """All verbs by name, in the order of the help."""
    from kernel_backend.cli import (
        act,
        artifacts,
        backup,
        checkpoints,
        compare,
        doctor,
        environment,
        look,
        page,
        searches,
        sharing,
    )

    found = [
        *act.SUBMIT,
        *look.VERBS,
        environment.ENV,
        *compare.VERBS,
        *searches.VERBS,
        *checkpoints.VERBS,
        artifacts.ARTIFACTS,
        *sharing.VERBS,
        *act.VERBS,
        *backup.VERBS,
        page.OPEN,
        doctor.DOCTOR,
    ]
    return {verb.name: verb for verb in found}


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line; the exit code."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(tokens)
    except DaylightError as error:
        say(f"daylight: {error.message}")
        return _exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `daylight logs 12 | head`: nobody wants the rest
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
    return known[name].run(rest)


def _is_text(token: str) -> bool:
    """Whether it can be printed, sent and stored: Python reads other bytes as lone surrogates."""
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
