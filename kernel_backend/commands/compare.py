"""Define the verbs that compare experiments: diff and history."""

from __future__ import annotations

import time

from kernel_backend.commands.answer import FAILED, OK, Answer, Comparison, Table, Text
from kernel_backend.commands.attribution import attribute
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument, count
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.ids import parse_subject, whole
from kernel_backend.text import guarantee_text
from kernel_backend.text.compare import (
    HISTORY_HEAD,
    attribution_head,
    attribution_lines,
    attribution_row,
    history_row,
)

MOST = 200  # rows of a history


def _diff(call: Call) -> Answer:
    client, a, b = call.client, whole(call.reference), whole(call.resolve(call.arguments.other))
    strict = call.arguments.strict
    if strict and call.arguments.attribute:
        raise InvalidRequest("--strict compares results, and --attribute trains for causes: leave one of them out")
    if not call.arguments.attribute:
        diff = client.diff(a, b)
        if not strict or diff.results.identical:
            return Answer(diff, [Comparison(diff)], code=OK)
        promised = {number: guarantee_text(client.experiment(number)) for number in (a, b)}
        lines = [f"#{number} promises: {text}" for number, text in promised.items() if text]
        return Answer(diff, [Comparison(diff), Text(["not shown to be bit-identical", *lines])], code=FAILED)
    found = attribute(client, a, b, call.console.say)
    rows = [attribution_row(row) for row in found.rows]
    return Answer(found, [Table(attribution_head(found), rows, ""), Text(attribution_lines(found))])


def _history(call: Call) -> Answer:
    found = call.client.history(" ".join(call.arguments.words) or None, min(call.arguments.limit, MOST))
    rows = [history_row(each, time.time()) for each in found]
    return Answer({"history": found}, [Table(HISTORY_HEAD, rows, "no such experiments")])


DIFF = Verb(
    "diff",
    "list the differences between two experiments, the likeliest cause first",
    _diff,
    (
        NUMBER,
        argument(
            "other",
            metavar="OTHER",
            type=parse_subject,
            help="the experiment to compare it with",
            complete="experiment",
        ),
        argument(
            "--attribute",
            action="store_true",
            help="rerun with one group of causes after the other restored, and report the effect of each",
        ),
        argument(
            "--strict",
            action="store_true",
            help="exit with 1 unless both are bit-identical: equal reports, checkpoints and final states",
        ),
        JSON,
    ),
    ("diff 41 97", "diff 41 97 --attribute", "diff 41 97 --strict", "diff 41 97 --json | jq .results.identical"),
    takes="two experiments",
    client=("diff",),
    job=("diff",),
)
HISTORY = Verb(
    "history",
    "list the changes from experiment to experiment",
    _history,
    (
        argument("words", nargs="*", metavar="TEXT", help="names that contain it"),
        argument(
            "--limit", metavar="N", type=count, default=20, help="number of experiments, newest first, at most 200 [20]"
        ),
        JSON,
    ),
    ("history digits",),
    client=("history",),
)
