"""The verbs that look and change nothing."""

from __future__ import annotations

import sys
import time
from argparse import Namespace

from kernel_backend.cli.follow import wait
from kernel_backend.cli.logs import LOGS
from kernel_backend.cli.output import print_json, print_table, tell
from kernel_backend.cli.verb import OK, Verb, count, takes_json, takes_one
from kernel_backend.client import Client
from kernel_backend.model.facts import known
from kernel_backend.model.options import OptionParser
from kernel_backend.model.overview import Overview
from kernel_backend.model.printable import harmless
from kernel_backend.model.reports import StoredReport
from kernel_backend.text import (
    OWNED_HEAD,
    TABLE_HEAD,
    attempt_lines,
    failure_text,
    guarantee_text,
    head_text,
    number,
    params_text,
    progress_line,
    search_text,
    table_row,
)
from kernel_backend.text.given import fact_lines, given_line
from kernel_backend.text.terminal import hand_over


def _list(options: Namespace) -> int:
    asked = options.state, options.search, options.limit, options.owner, options.group
    found = Client.connect().experiments(*asked)
    if options.json:
        print_json({"experiments": found})
    elif options.owner is None and options.group is None:
        rows = [table_row(each, time.time()) for each in found]
        print_table(TABLE_HEAD, rows, "no experiments: daylight submit FILE.py makes one")
    else:
        rows = [table_row(each, time.time(), owner=True) for each in found]
        print_table(OWNED_HEAD, rows, "no experiments that you may see")
    return OK


def _list_arguments(parser: OptionParser) -> None:
    states = "queued, starting, running, releasing, paused, stopping, stopped, completed or failed"
    parser.add_argument("--state", metavar="STATE", help=f"only those that are {states}")
    parser.add_argument("--search", metavar="TEXT", help="names that contain it")
    parser.add_argument("--limit", metavar="N", type=count, default=50, help="at most so many, newest first [50]")
    parser.add_argument(
        "--group",
        metavar="NAME",
        nargs="?",
        const="",
        help="those of everybody in this group, without a name of all of whom you may see any",
    )
    parser.add_argument("--owner", metavar="NAME", help="those of this person")
    takes_json(parser)


def _show(options: Namespace) -> int:
    client = Client.connect()
    overview: Overview | None = client.experiment(options.reference.experiment)
    code = OK
    if options.follow and overview:
        overview, code = wait(client, overview, sys.stderr if options.json else sys.stdout)
    if overview and options.json:
        print_json(overview)
    elif overview:
        number = overview.experiment.number
        facts = client.facts(number, overview.front.index if overview.front else 1)
        given = given_line(known(facts), client.source(number)[1])
        tell("\n".join(_card(overview, given, failures=not options.follow)))
    return code


def _card(overview: Overview, given: str, failures: bool) -> list[str]:
    """An experiment in lines, with what it was `given`; `failures` can be left out where they have been told."""
    experiment = overview.experiment
    origin = experiment.rerun_of
    again = f"#{origin} again: daylight diff {origin} {experiment.number} compares them" if origin else ""
    searched = experiment.config.search is not None
    befell = [] if searched else attempt_lines(overview)
    said = [line for line in (search_text(overview), again, guarantee_text(overview), given, *befell) if line]
    lines = [head_text(overview, time.time()), *(f"  {line}" for line in said)]
    best = [overview.front] if overview.front else []
    for trial in best if searched else overview.trials:
        lines += [f"  {params_text(trial.params)}".rstrip(), f"  {progress_line(trial, experiment.config)}"]
        if trial.failure and failures and trial.state == "failed":
            lines += [f"  {line}" for line in failure_text(trial.failure).splitlines()]
    lines += [f"  note: {warning}" for warning in overview.warnings]
    return [line for line in lines if line]


def _follow_argument(parser: OptionParser) -> None:
    takes_one(parser)
    parser.add_argument("--follow", action="store_true", help="stay, and show how it goes on until it has ended")
    takes_json(parser)


def _metrics(options: Namespace) -> int:
    client, number = Client.connect(), options.reference.experiment
    kind = None if options.kind == "all" else options.kind
    reports = client.reports(number, options.reference.trial or client.front(number), kind)
    if options.json:
        print_json({"reports": reports})
    else:
        names = list(dict.fromkeys(name for report in reports for name in report.metrics))
        rows = [_report_row(report, names) for report in reports]
        print_table(["step", "epoch", "kind", *names], rows, "no reports")
    return OK


def _report_row(report: StoredReport, names: list[str]) -> list[str]:
    values = [number(report.metrics[name]) if name in report.metrics else "" for name in names]
    return [str(report.step), f"{report.epoch:.2f}", report.kind, *values]


def _metrics_arguments(parser: OptionParser) -> None:
    takes_one(parser)
    kinds = ["validation", "training", "all"]
    parser.add_argument("--kind", choices=kinds, default="all", help="which reports [all]")
    takes_json(parser)


def _facts(options: Namespace) -> int:
    client, reference = Client.connect(), options.reference
    facts = client.facts(reference.experiment, reference.trial or client.front(reference.experiment))
    snapshot = client.source(reference.experiment)[1]
    if options.json:
        print_json({"facts": facts, "data": snapshot.data, "commits": snapshot.commits})
    else:
        tell("\n".join(fact_lines(known(facts), snapshot)) or "nothing is known yet: it is told by a rank that trains")
    return OK


def _source(options: Namespace) -> int:
    definition, snapshot = Client.connect().source(options.reference.experiment)
    if options.json:
        print_json({"definition": definition, "snapshot": snapshot})
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.syntax import Syntax

        Console().print(Syntax(harmless(definition), "python", line_numbers=True, background_color="default"))
    else:
        hand_over(definition)
    return OK


def _one_or_json(parser: OptionParser) -> None:
    takes_one(parser)
    takes_json(parser)


VERBS = (
    Verb(
        "list", "list experiments, newest first", _list, _list_arguments, ("list --state failed", "list --search gan")
    ),
    Verb("show", "show an experiment", _show, _follow_argument, ("show 12", "show 12 --follow", "show 12 --json")),
    LOGS,
    Verb("metrics", "print the reports of a trial", _metrics, _metrics_arguments, ("metrics 12 --json",)),
    Verb(
        "facts",
        "show what a result depends on beside its code: data, files, first weights",
        _facts,
        _one_or_json,
        ("facts 12",),
    ),
    Verb("source", "print what was submitted", _source, _one_or_json, ("source 12 > train.py",)),
)
