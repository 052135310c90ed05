"""The verbs about checkpoints: list them, do something to one, and have the rules applied to all."""

from __future__ import annotations

import sys
import time
from argparse import Namespace

from kernel_backend.cli.output import print_json, print_table, say, tell
from kernel_backend.cli.verb import FAILED, OK, USAGE, Verb, takes_json, takes_one
from kernel_backend.client import Client
from kernel_backend.model.ids import parse_reference
from kernel_backend.model.options import OptionParser
from kernel_backend.model.overview import CheckpointInfo
from kernel_backend.text import size
from kernel_backend.text.kept import checkpoint_head, checkpoint_row, collected_lines


def _checkpoints(options: Namespace) -> int:
    from jupyter_ext.checkpoints import listed, verified

    client = Client.connect()
    found = listed(client, options.reference)
    if options.verify:
        found = verified(client, found)
    if options.json:
        print_json({"checkpoints": found.infos})
    else:
        rows = [checkpoint_row(each, found.metric.name, time.time()) for each in found.infos]
        print_table(checkpoint_head(found.metric.name), rows, "no checkpoint has been committed")
    return _tell_damage(found.infos)


def _tell_damage(infos: list[CheckpointInfo]) -> int:
    damaged = [each for each in infos if each.verified == "damaged"]
    for each in damaged:
        say(each.problem)
    return FAILED if damaged else OK


def _checkpoint(options: Namespace) -> int:
    from jupyter_ext.checkpoints import act_on, chosen, listed

    client = Client.connect()
    found = listed(client, options.reference)
    infos = chosen(found, options.action, options)
    if options.action == "delete" and not (options.yes or _agrees(f"delete {found.name(infos[0])}", infos[0])):
        return USAGE
    done = act_on(client, found, options.action, infos, options)
    if options.json:
        print_json({"checkpoints": [info for info, _ in done]})
    else:
        tell("\n".join(said for _, said in done) or "no checkpoint has been committed")
    damaged = any(info.verified == "damaged" for info, _ in done)
    return FAILED if options.action == "verify" and damaged else OK


def _agrees(what: str, info: CheckpointInfo) -> bool:
    """Whether the person at the terminal says yes; where nobody sits at one, the command line was the answer."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    print(f"{what} ({size(info.bytes)})? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    say("nothing was deleted")
    return False


def _gc(options: Namespace) -> int:
    number = options.reference.experiment if options.reference else None
    found = Client.connect().collect(number, options.dry_run)
    if options.json:
        print_json(found)
    else:
        tell("\n".join(collected_lines(found, options.dry_run, options.verbose)))
    return FAILED if found.problems else OK


def _list_arguments(parser: OptionParser) -> None:
    takes_one(parser)
    parser.add_argument("--verify", action="store_true", help="read every byte of those that have not been read yet")
    takes_json(parser)


def _one_arguments(parser: OptionParser) -> None:
    from jupyter_ext.checkpoints import ACTIONS, add_choice

    parser.add_argument("action", metavar="ACTION", help=", ".join(ACTIONS))
    takes_one(parser)
    add_choice(parser)
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    takes_json(parser)


def _gc_arguments(parser: OptionParser) -> None:
    parser.add_argument(
        "reference", metavar="NUMBER", nargs="?", type=parse_reference, help="one experiment, as 12 [all]"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")
    parser.add_argument("--verbose", action="store_true", help="say what stays, too, and why")
    takes_json(parser)


VERBS = (
    Verb(
        "checkpoints",
        "list what has been committed, and why it is kept",
        _checkpoints,
        _list_arguments,
        ("checkpoints 12", "checkpoints 12.1 --verify"),
    ),
    Verb(
        "checkpoint",
        "verify, download, delete, pin or unpin a checkpoint",
        _checkpoint,
        _one_arguments,
        (
            "checkpoint verify 12",
            "checkpoint download 12 --best --to digits",
            "checkpoint delete 12.1 --step 500",
            "checkpoint pin 12 --latest",
        ),
    ),
    Verb("gc", "delete the checkpoints that the rules let go", _gc, _gc_arguments, ("gc --dry-run", "gc 12 --verbose")),
)
