"""`daylight env`: what an experiment ran with, and what that can be built from again."""

from __future__ import annotations

from argparse import Namespace

from kernel_backend.cli.output import print_json
from kernel_backend.cli.verb import OK, Verb, takes_json, takes_one
from kernel_backend.client import Client
from kernel_backend.model.options import OptionParser
from kernel_backend.text.terminal import hand_over, tell


def _env(options: Namespace) -> int:
    from jupyter_ext.views.recorded import environment_lines, lock_text

    number = options.reference.experiment
    found = Client.connect().environment(number)
    if options.json:
        print_json(found)
    elif options.lock:
        hand_over(lock_text(found, number))
    else:
        tell("\n".join(environment_lines(found)))
    return OK


def _arguments(parser: OptionParser) -> None:
    takes_one(parser)
    parser.add_argument(
        "--lock", action="store_true", help="print the lock: requirements with hashes, as pip takes them"
    )
    takes_json(parser)


ENV = Verb("env", "show what it ran with, and the lock of that", _env, _arguments, ("env 12", "env 12 --lock"))
