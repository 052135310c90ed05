"""Define the verbs profile, utilisation and top, which show where time goes and how slots are used."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from kernel_backend.client import Client
from kernel_backend.commands.answer import Answer, Frame, Frames, Table, Text
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument
from kernel_backend.errors import Conflict, InvalidRequest, NotFound
from kernel_backend.model.launch.trace import OPERATIONS, RankTrace, TraceRequest
from kernel_backend.model.launch.utilisation import Utilisation
from kernel_backend.model.record import checked
from kernel_backend.model.versions import read
from kernel_backend.spec.limits import whole_number
from kernel_backend.text import head_text
from kernel_backend.text import times as words
from kernel_backend.text import utilisation as used
from kernel_backend.text.traces import NO_TRACE, TRACE_HEAD, trace_lines, trace_rows

LOOK_S = 0.5  # between polls for the end of a recording
PERIOD_S = 2.0  # between polls, as launchers deliver times at this interval


def _profile(call: Call) -> Answer:
    client, (experiment, trial, _) = call.client, call.reference
    options = call.arguments
    if options.ranks is not None and options.steps is None:
        raise InvalidRequest(f"--ranks says which ranks record a trace: write {call.command} 12 --steps 10 --ranks 0,3")
    if options.steps is not None:
        wanted = checked(TraceRequest, trial=trial, steps=options.steps, ranks=_ranks(options.ranks or "0"))
        return _traces(client, experiment, trial, record_trace(client, experiment, wanted))
    if options.trace:
        return _traces(client, experiment, trial)
    found = client.times(experiment, trial)
    table = Table(words.profile_head(found), words.profile_rows(found), words.NOTHING)
    return Answer(found, [table, Text(words.profile_lines(found))])


def _ranks(text: str) -> tuple[int, ...]:
    words = [each.strip() for each in text.split(",")]
    if not all(each.isdecimal() for each in words):
        raise InvalidRequest(f"--ranks {text}: write numbers of ranks, such as 0,3")
    return tuple(map(int, words))


def record_trace(client: Client, number: int, wanted: TraceRequest) -> str:
    """Record a trace on ranks of a running training, as `wanted` says, and wait until it is stored.

    Returns the note of the service about it. Raises Conflict if no training runs, or if it ends before the trace is
    recorded.
    """
    before = client.trace(number, wanted)
    asked = next(each for each in reversed(before.attempts) if each.trace is not None)
    trace = asked.trace
    while True:
        now = client.experiment(number)
        attempt = next((each for each in now.attempts if each.id == asked.id), None)
        if attempt is None or attempt.trace != trace or attempt.ended_at is not None:
            break
        time.sleep(LOOK_S)
    news = [text for text in now.warnings if text not in before.warnings and "trace" in text]
    if attempt is None or attempt.trace == trace:
        raise Conflict(news[-1] if news else f"attempt {asked.id} ended before the trace was recorded")
    return news[-1] if news else ""


def traces_of(client: Client, number: int, trial: int | None) -> list[RankTrace]:
    """Return the longest operations of the newest trace by rank; raises NotFound if there is no trace."""
    data = client.artifact(number, trial or client.front(number), OPERATIONS)
    return [read(RankTrace, each) for each in json.loads(data)]


def _traces(client: Client, number: int, trial: int | None, note: str = "") -> Answer:
    try:
        found = traces_of(client, number, trial)
    except NotFound:
        found = []
    lines = [*([note] if note else []), *trace_lines(number, found)]
    return Answer({"ranks": found}, [Table(TRACE_HEAD, trace_rows(found), NO_TRACE), Text(lines)])


def _top(call: Call) -> Answer:
    return Answer(None, [Frames(_frames(call.client, call.reference.experiment, call.reference.trial))])


def _frames(client: Client, number: int, trial: int | None) -> Iterator[Frame]:
    """Yield the frames of `daylight top` every two seconds, until the training has ended or needs the user.

    A frame shows where the time of each rank went since the previous frame, and the current use of its slots.
    """
    trial = trial or client.front(number)
    before = client.times(number, trial)
    while True:
        overview = client.experiment(number)
        now = client.times(number, trial)
        use = _use(client, number, trial)
        ranks = words.since(before, now)
        lines = [head_text(overview, time.time()), *([now.sentence] if now.sentence else [])]
        tables = [Table(words.TOP_HEAD, words.top_rows(ranks), words.NOTHING), Table(*used.now_table(use), "")]
        yield Frame(lines, tables, [*words.top_lines(ranks), *used.now_lines(use)])
        if overview.at_rest:
            return
        before = now
        time.sleep(PERIOD_S)


def _utilisation(call: Call) -> Answer:
    experiment, trial, _ = call.reference
    found = call.client.utilisation(experiment, trial)
    head, rows = used.use_table(found)
    return Answer(found, [Table(head, rows, used.NOTHING), Text(used.use_lines(found))])


def _use(client: Client, number: int, trial: int) -> Utilisation:
    """Return the current use of a trial's slots, without curves; an empty record if the service is too old for that."""
    try:
        return client.utilisation(number, trial, points=0)
    except NotFound:
        return Utilisation()


PROFILE = Verb(
    "profile",
    "show where the time of each step goes, on every rank, and what makes the training slow",
    _profile,
    (
        NUMBER,
        argument("--steps", type=whole_number, metavar="N", help="record a trace of so many steps, now"),
        argument("--ranks", metavar="LIST", help="ranks that record it, such as 0,3 [0]"),
        argument("--trace", action="store_true", help="show the operations of the newest trace"),
        JSON,
    ),
    ("profile 12", "profile 12.3 --json", "profile 12 --steps 10 --ranks 0,3", "profile 12 --trace"),
    client=("times", "trace"),
    job=("times", "trace"),
)
UTILISATION = Verb(
    "utilisation",
    "show the use of its slots: GPU, CPU, memory, temperature and power, now and in the whole run",
    _utilisation,
    (NUMBER, JSON),
    ("utilisation 12", "utilisation 12.3 --json"),
    client=("utilisation",),
    job=("utilisation",),
)
TOP = Verb(
    "top",
    "show where the time of each rank goes and the use of its slot, live, until the training ends",
    _top,
    (NUMBER,),
    ("top 12",),
    host="terminal",
    client=("times",),
)
