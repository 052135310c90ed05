"""Define the verb logs: print a rank's log, filtered, and follow it across attempts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from kernel_backend.commands.answer import Answer, Log
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument, count
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.states import TRIAL_ENDED
from kernel_backend.model.views.overview import LogChunk, Overview
from kernel_backend.text import hang_text

LOOK_S = 0.5  # between reads of a followed log


def _logs(call: Call) -> Answer:
    options = call.arguments
    wanted = _pattern(options.grep)
    chunks = _chunks(call, spaced=call.program == "daylight")
    if call.json:
        *_, last = chunked = list(chunks)
        text = "".join(line for line in _lines(iter(chunked)) if wanted.search(line))
        return Answer({**last.to_json(), "text": text})
    lines = (line for line in _lines(chunks) if wanted.search(line))
    return Answer(None, [Log(lines, "" if options.grep else "nothing was printed")])


def _chunks(call: Call, spaced: bool) -> Iterator[LogChunk]:
    """Yield a rank's log in chunks; with the option `follow`, continue with later attempts until the trial has ended.

    The log of an attempt that hung is followed by the stack traces of its ranks; with `spaced`, after an empty line.
    """
    client, options, (experiment, trial, attempt) = call.client, call.arguments, call.reference
    trial = trial or client.front(experiment)
    attempt, rank, offset = options.attempt or attempt, options.rank, 0
    follow = getattr(options, "follow", False)
    while True:
        chunk = client.logs(experiment, trial, attempt, rank, offset)
        yield chunk
        offset = chunk.offset
        if chunk.attempt:  # stay with this rank and attempt, whichever rank fails or attempt begins meanwhile
            attempt, rank = chunk.attempt, chunk.rank
        if offset < chunk.size:
            continue
        overview = client.experiment(experiment)
        now = next((each for each in overview.trials if each.index == trial), None)
        goes_on = follow and chunk.ended and now is not None and now.attempt > chunk.attempt
        # A trial may end before its first attempt; of many trials, those not listed have ended or are paused.
        ended = now is None or now.state in TRIAL_ENDED
        over = not follow or (ended and (chunk.ended or not chunk.attempt))
        if goes_on or over:
            yield from _stacks(overview, trial, chunk, spaced)
        if goes_on:
            attempt, rank, offset = _following(overview, trial, chunk.attempt), options.rank, 0
        elif over:
            return
        else:
            time.sleep(LOOK_S)


def _following(overview: Overview, trial: int, attempt: int) -> int:
    """Return the number of the attempt after `attempt`.

    It may be larger by more than one if the database was restored from a copy, as numbers are not used twice.
    """
    later = [each.number for each in overview.attempts if each.trial == trial and each.number > attempt]
    return min(later, default=attempt + 1)


def _stacks(overview: Overview, trial: int, chunk: LogChunk, spaced: bool) -> Iterator[LogChunk]:
    text = hang_text(overview, trial, chunk.attempt)
    if text:
        between = "\n" if chunk.size and (spaced or not chunk.text.endswith("\n")) else ""
        yield chunk.model_copy(update={"text": f"{between}{text}\n"})


def _lines(chunks: Iterator[LogChunk]) -> Iterator[str]:
    """Yield the complete lines of a log from its chunks; an incomplete last line gets a newline."""
    rest = ""
    for chunk in chunks:
        *whole, rest = (rest + chunk.text).split("\n")
        yield from (f"{line}\n" for line in whole)
    if rest:
        yield f"{rest}\n"


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"--grep {text}: {error}; write \\ before a character that is meant as such") from None


LOGS = Verb(
    "logs",
    "print the output of a rank",
    _logs,
    (
        NUMBER,
        argument("--rank", metavar="N", type=count, help="number of the rank [the first that failed, else 0]"),
        argument("--attempt", metavar="N", type=count, help="number of the attempt [the newest]"),
        argument("--grep", metavar="REGEX", default="", help="only lines that it matches"),
        argument(
            "--follow",
            action="store_true",
            help="print new lines until the trial has ended",
            host="terminal",
        ),
        JSON,
    ),
    ("logs 12 --follow", "logs 12.1-2 --rank 1", "logs 12 --grep Error"),
    client=("logs",),
    job=("logs",),
)
