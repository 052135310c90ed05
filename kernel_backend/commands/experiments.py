"""Define the verbs on experiments: list, show, metrics, facts, source; stop, pause, resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kernel_backend.client import Client
from kernel_backend.commands.answer import OK, Answer, Card, File, Table, Text
from kernel_backend.commands.logs import LOGS
from kernel_backend.commands.rerun import CONTINUE
from kernel_backend.commands.verb import COMMANDS, JSON, NUMBER, Call, Verb, argument, count
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.facts import known
from kernel_backend.model.labels import split_tags
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.views.overview import Overview
from kernel_backend.spec.options import VIEWS, Host
from kernel_backend.spec.slots import parse_slots
from kernel_backend.text import OWNED_HEAD, TABLE_HEAD, already_text, head_text, new_notes, number, table_row
from kernel_backend.text.provenance import fact_lines

STATES = "queued, starting, running, releasing, paused, stopping, stopped, completed, failed or deleted"
EVERYBODY = "experiments of all users in this group; without a name, all that you may see"
SPARE = ("tags", "elapsed", "slots", "epoch", "group")  # columns that a narrow terminal leaves out, in this order


def _list(call: Call) -> Answer:
    asked = call.arguments
    text = " ".join(asked.words) or asked.search
    tags = split_tags(asked.tag or "")
    found = call.client.experiments(asked.state, text, asked.limit, asked.owner, asked.group, tags)
    others = asked.owner is not None or asked.group is not None
    head, rows = OWNED_HEAD if others else TABLE_HEAD, [table_row(each, time.time(), owner=others) for each in found]
    if any(each.experiment.tags for each in found):
        head = (*head, "tags")
        rows = [(*row, ", ".join(each.experiment.tags)) for row, each in zip(rows, found, strict=True)]
    how = "daylight submit FILE.py" if call.program == "daylight" else "%%dlsubmit"
    none = "no experiments that you may see" if others else f"no experiments: {how} makes one"
    return Answer({"experiments": found}, [Table(head, rows, none, SPARE)])


def _show(call: Call) -> Answer:
    client, code = call.client, OK
    follows = getattr(call.arguments, "follow", False)
    overview: Overview | None = client.experiment(call.reference.experiment)
    if follows and overview:
        overview, code = call.console.wait(client, overview, ())
    if overview is None:
        return Answer(None, code=code)
    page = client.page(overview.experiment.number)
    return Answer(
        overview,
        [Card(client, overview, failures=not follows), *([Text([f"in a browser: {page}"])] if page else [])],
        code=code,
    )


def _metrics(call: Call) -> Answer:
    client, (experiment, trial, _), kind = call.client, call.reference, call.arguments.kind
    reports = client.reports(experiment, trial or client.front(experiment), None if kind == "all" else kind)
    names = list(dict.fromkeys(name for report in reports for name in report.metrics))
    rows = [_report_row(report, names) for report in reports]
    return Answer({"reports": reports}, [Table(["step", "epoch", "kind", *names], rows, "no reports")])


def _report_row(report: StoredReport, names: list[str]) -> list[str]:
    values = [number(report.metrics[name]) if name in report.metrics else "" for name in names]
    return [str(report.step), f"{report.epoch:.2f}", report.kind, *values]


def _facts(call: Call) -> Answer:
    client, (experiment, trial, _) = call.client, call.reference
    facts = client.facts(experiment, trial or client.front(experiment))
    snapshot = client.source(experiment)[1]
    lines = fact_lines(known(facts), snapshot) or ["nothing is known yet: the ranks report it once they train"]
    return Answer({"facts": facts, "data": snapshot.data, "commits": snapshot.commits}, [Text(lines)])


def _source(call: Call) -> Answer:
    definition, snapshot = call.client.source(call.reference.experiment)
    return Answer({"definition": definition, "snapshot": snapshot}, [File(definition, python=True)])


def _change(name: str, text: str, change: Callable[[Client, int], Overview]) -> Verb:
    def run(call: Call) -> Answer:
        overview = change(call.client, call.reference.experiment)
        return Answer(overview, [Text([head_text(overview, time.time())])])

    return Verb(name, text, run, (NUMBER, JSON), (f"{name} 12",), client=(name,), job=(name,))


def _resume(call: Call) -> Answer:
    longer = [each for flag in ("epochs", "steps") if (n := getattr(call.arguments, flag)) for each in (f"--{flag}", n)]
    if longer:
        return _continued(call, longer)
    _check_no_values(call)
    client, experiment = call.client, call.reference.experiment
    before = client.experiment(experiment)
    overview = client.resume(experiment, *(call.arguments.slots or ()))
    notes = [*already_text(before), *new_notes(before, overview)]
    return Answer(overview, [Text([head_text(overview, time.time()), *(f"note: {note}" for note in notes)])])


def _continued(call: Call, longer: Sequence[str]) -> Answer:
    """Continue the experiment for the length in `longer`, such as `--epochs 8`, since a resumed one keeps its own."""
    asked, (experiment, trial, _) = call.arguments, call.reference
    slots = asked.slots and ["--slots", "..".join(str(each) for each in reversed(asked.slots) if each)]
    tokens = [f"{experiment}.{trial}" if trial else str(experiment), *asked.words, *longer, *(slots or ())]
    written = " ".join(["continue", *tokens])
    call.console.note(f"#{experiment} trains on as a new experiment, as by {call.program} {written}")
    host: Host = "terminal" if call.program == COMMANDS["terminal"] else "notebook"
    return CONTINUE.run(call.with_arguments(CONTINUE.parse([*tokens, *(["--json"] if call.json else [])], host)))


def _check_no_values(call: Call) -> None:
    """Raise InvalidRequest, with the lines that do it, if hyperparameters are given to a verb that keeps them."""
    words, number = call.arguments.words, call.reference.experiment
    if words and all("=" in each for each in words):
        values = " ".join(words)
        raise InvalidRequest(
            f"{call.command} keeps the values of #{number}: write {call.program} continue {number} {values} --epochs N "
            f"to train on with others, {call.program} rerun {number} {values} to train with them from the beginning"
        )
    if words:
        raise InvalidRequest(f"{call.command} takes one experiment: write {call.command} {number}")


def _move(call: Call) -> Answer:
    before = call.client.experiment(call.reference.experiment)
    overview = call.client.move(before.experiment.number, call.arguments.pool)
    notes = [f"note: {note}" for note in new_notes(before, overview)]
    return Answer(overview, [Text([head_text(overview, time.time()), *notes])])


LOOK = (
    Verb(
        "list",
        "list experiments, newest first",
        _list,
        (
            argument("words", nargs="*", metavar="TEXT", help="names, notes and tags that contain it", host="notebook"),
            argument("--state", metavar="STATE", help=f"only those that are {STATES}", complete="state"),
            argument("--search", metavar="TEXT", help="those whose name, note or a tag contains it"),
            argument("--tag", metavar="TAG", help="those with this tag, of several as a,b with all of them"),
            argument("--limit", metavar="N", type=count, default=50, help="at most so many, newest first [50]"),
            argument("--group", metavar="NAME", nargs="?", const="", help=EVERYBODY, complete="group"),
            argument("--owner", metavar="NAME", help="those of this user", complete="user"),
            JSON,
        ),
        ("list --state failed", "list --search gan", "list --tag baseline"),
        client=("experiments",),
    ),
    Verb(
        "show",
        "show an experiment",
        _show,
        (
            NUMBER,
            argument("--view", metavar="KIND", choices=VIEWS, help="card, widget or auto", host="notebook"),
            argument(
                "--follow",
                action="store_true",
                help="show progress until the experiment has ended",
                host="terminal",
            ),
            JSON,
        ),
        ("show 12", "show 12 --follow", "show 12 --json"),
        client=("experiment",),
        job=("show", "wait"),
    ),
    LOGS,
    Verb(
        "metrics",
        "print the reports of a trial",
        _metrics,
        (
            NUMBER,
            argument("--kind", choices=["validation", "training", "all"], default="all", help="which reports [all]"),
            JSON,
        ),
        ("metrics 12 --json",),
        client=("reports",),
        job=("metrics",),
    ),
    Verb(
        "facts",
        "show what a result depends on besides its code: data, files, initial weights",
        _facts,
        (NUMBER, JSON),
        ("facts 12",),
        client=("facts",),
    ),
    Verb(
        "source",
        "print what was submitted",
        _source,
        (NUMBER, JSON),
        ("source 12 > train.py",),
        client=("source",),
        job=("source",),
    ),
)
CHANGE = (
    _change("stop", "end an experiment for good; its checkpoints stay", Client.stop),
    _change("pause", "commit a checkpoint and release the slots", Client.pause),
    Verb(
        "resume",
        "resume a paused experiment",
        _resume,
        (
            NUMBER,
            argument("words", nargs="*", metavar="name=value", help="with --epochs or --steps: other values"),
            argument("--epochs", metavar="N", help="continue it up to so many epochs, as a new experiment"),
            argument("--steps", metavar="N", help="the same, in steps"),
            argument(
                "--slots",
                metavar="N",
                type=parse_slots,
                help="number of slots from now on, such as 4 or 1..4 [as before]",
            ),
            JSON,
        ),
        ("resume 12", "resume 12 --slots 4", "resume 12 --epochs 20"),
        client=("resume",),
        job=("resume",),
    ),
    Verb(
        "move",
        "move an experiment to another pool; what runs goes on there from a checkpoint",
        _move,
        (
            NUMBER,
            argument(
                "--pool",
                metavar="NAME",
                required=True,
                help="the pool, or several as gpu,cloud: the first of them that can start it runs it",
            ),
            JSON,
        ),
        ("move 12 --pool cloud", "move 12 --pool gpu,cloud"),
        client=("move",),
        job=("move",),
    ),
)
