"""The verbs that lay experiments beside each other: diff, rerun, verify, history."""

from __future__ import annotations

import sys
import time
from argparse import Namespace

from kernel_backend.cli.follow import wait
from kernel_backend.cli.output import print_json, print_table, say, tell
from kernel_backend.cli.verb import FAILED, OK, Verb, count, takes_json, takes_one
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.assignments import parse_assignments
from kernel_backend.model.diff import Diff
from kernel_backend.model.ids import Reference, parse_reference, whole
from kernel_backend.model.options import OptionParser, add_rerun_options, add_trust
from kernel_backend.model.overview import Overview
from kernel_backend.model.printable import harmless
from kernel_backend.model.spelling import given_settings
from kernel_backend.text import head_text

MOST = 200  # rows of a history


def _diff(options: Namespace) -> int:
    client, a, b = Client.connect(), whole(options.reference), whole(options.other)
    if options.attribute:
        return _attribute(client, a, b, options)
    found = client.diff(a, b)
    if options.json:
        print_json(found)
    else:
        _show(found)
    return OK


def _attribute(client: Client, a: int, b: int, options: Namespace) -> int:
    from jupyter_ext.attribute import attribute
    from jupyter_ext.views.beside import attribution_head, attribution_lines, attribution_row

    found = attribute(client, a, b, say)
    if options.json:
        print_json(found)
    else:
        print_table(attribution_head(found), [attribution_row(row) for row in found.rows], "")
        tell("\n".join(attribution_lines(found)))
    return OK


def _show(diff: Diff) -> None:
    from jupyter_ext.views.beside import diff_lines

    if not sys.stdout.isatty():
        tell("\n".join(diff_lines(diff)))
        return
    from rich.console import Console
    from rich.text import Text

    colours = {"+": "green", "-": "red", "~": "yellow", "@": "dim", ".": "dim"}
    console = Console()
    for line in diff_lines(diff):
        detail = line.startswith(" " * 20)
        console.print(Text(harmless(line), colours.get(line.strip()[:1], "") if detail else ""))


def _diff_arguments(parser: OptionParser) -> None:
    takes_one(parser)
    parser.add_argument("other", metavar="OTHER", type=parse_reference, help="the experiment to lay beside it")
    text = "train again with one group of causes after the other put back, and say how much each makes"
    parser.add_argument("--attribute", action="store_true", help=text)
    takes_json(parser)


def _rerun(options: Namespace) -> int:
    from jupyter_ext.again import plan

    client, (number, trial, _) = Client.connect(), _reference(options.words)
    params = parse_assignments(options.words[1:])
    planned = plan(
        client, number, params, given_settings(options), options.name, options.data or (), trial, options.trust
    )
    for note in planned.notes:
        say(f"note: {note}")
    compared = trial in (None, 1)  # there is nothing to compare others with
    return _seen_to_its_end(client, client.rerun(number, planned.asked), options, strict=False, compared=compared)


def _reference(words: list[str]) -> Reference:
    if not words or "=" in words[0]:
        raise InvalidRequest("rerun takes an experiment first: daylight rerun 41 lr=0.1")
    return parse_reference(words[0])


def _rerun_arguments(parser: OptionParser) -> None:
    text = "the experiment, or one trial of a search, and what shall be other"
    parser.add_argument("words", nargs="*", metavar="NUMBER name=value", help=text)
    add_rerun_options(parser, "terminal")


def _verify(options: Namespace) -> int:
    from jupyter_ext.again import plan

    client, number = Client.connect(), whole(options.reference)
    planned = plan(client, number, {}, {}, trust=options.trust)
    for note in planned.notes:
        say(f"note: {note}")
    return _seen_to_its_end(client, client.retrain(number, planned.asked), options, strict=True)


def _verify_arguments(parser: OptionParser) -> None:
    takes_one(parser)
    add_trust(parser)
    parser.set_defaults(quiet=False, wait=True)
    takes_json(parser)


def _seen_to_its_end(
    client: Client, overview: Overview, options: Namespace, strict: bool, compared: bool = True
) -> int:
    """Tell of the new experiment, wait if asked to, and say whether bits agree; `strict`: else it has failed."""
    from jupyter_ext.again import verdict_text

    number, origin = overview.experiment.number, overview.experiment.rerun_of
    assert origin is not None
    if not options.wait:
        if options.json:
            print_json(overview)
        else:
            tell(number if options.quiet else head_text(overview, time.time()))
            if compared:
                say(f"daylight diff {origin} {number} tells whether its bits agree")
        return OK
    ended, code = wait(client, overview, sys.stderr if options.json or options.quiet else sys.stdout)
    if ended is None or code != OK:
        return code
    if not compared:
        if options.json:
            print_json(ended)
        return OK
    found = client.diff(origin, number)
    if options.json:
        print_json(found)
    else:
        tell(verdict_text(found, verifies=strict))
    return FAILED if strict and not found.results.identical else OK


def _history(options: Namespace) -> int:
    from jupyter_ext.views.beside import HISTORY_HEAD, history_row

    found = Client.connect().history(" ".join(options.words) or None, min(options.limit, MOST))
    if options.json:
        print_json({"history": found})
    else:
        print_table(HISTORY_HEAD, [history_row(each, time.time()) for each in found], "no such experiments")
    return OK


def _history_arguments(parser: OptionParser) -> None:
    parser.add_argument("words", nargs="*", metavar="TEXT", help="names that contain it")
    parser.add_argument("--limit", metavar="N", type=count, default=20, help="so many, newest first, at most 200 [20]")
    takes_json(parser)


VERBS = (
    Verb(
        "diff",
        "say what differs between two experiments, the likeliest cause first",
        _diff,
        _diff_arguments,
        ("diff 41 97", "diff 41 97 --attribute", "diff 41 97 --json | jq .results.identical"),
    ),
    Verb(
        "rerun",
        "train an experiment's snapshot again",
        _rerun,
        _rerun_arguments,
        ("rerun 41 --wait", "rerun 41 lr=0.1 --epochs 20", "rerun 12.7"),
        mixed=True,
    ),
    Verb(
        "verify",
        "train an experiment's first steps again, and say whether bits agree",
        _verify,
        _verify_arguments,
        ("verify 41",),
    ),
    Verb(
        "history",
        "say what has changed from experiment to experiment",
        _history,
        _history_arguments,
        ("history digits",),
        mixed=True,
    ),
)
