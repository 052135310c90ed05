"""`daylight logs`: what a rank has printed, filtered, and followed from attempt to attempt."""

from __future__ import annotations

import re
import time
from argparse import Namespace
from collections.abc import Iterator

from kernel_backend.cli.output import print_json, say
from kernel_backend.cli.verb import OK, Verb, count, takes_json, takes_one
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.options import OptionParser
from kernel_backend.model.overview import LogChunk, Overview
from kernel_backend.model.states import TRIAL_ENDED
from kernel_backend.text import hang_text
from kernel_backend.text.terminal import hand_over

LOOK_S = 0.5  # between looks at a log that is followed


def _logs(options: Namespace) -> int:
    wanted, printed = _pattern(options.grep), False
    chunks = _chunks(Client.connect(), options)
    if options.json:
        *_, last = chunked = list(chunks)
        text = "".join(line for line in _lines(iter(chunked)) if wanted.search(line))
        print_json({**last.to_json(), "text": text})
        return OK
    for line in _lines(chunks):
        if wanted.search(line):
            hand_over(line, log=True)
            printed = True
    if not (printed or options.grep):
        say("nothing was printed")
    return OK


def _chunks(client: Client, options: Namespace) -> Iterator[LogChunk]:
    """The log piece by piece, and with `follow` from attempt to attempt until the trial has ended.

    Behind the log of an attempt that hung comes where its ranks stood.
    """
    experiment = options.reference.experiment
    trial = options.reference.trial or client.front(experiment)
    attempt, rank, offset = options.attempt or options.reference.attempt, options.rank, 0
    while True:
        chunk = client.logs(experiment, trial, attempt, rank, offset)
        yield chunk
        offset = chunk.offset
        if chunk.attempt:  # on with the same file, whoever fails and whichever attempt begins meanwhile
            attempt, rank = chunk.attempt, chunk.rank
        if offset < chunk.size:
            continue
        overview = client.experiment(experiment)
        now = next((each for each in overview.trials if each.index == trial), None)
        goes_on = options.follow and chunk.ended and now is not None and now.attempt > chunk.attempt
        # A trial may have ended before it ever began; one of very many that is not shown has ended, or rests.
        ended = now is None or now.state in TRIAL_ENDED
        over = not options.follow or (ended and (chunk.ended or not chunk.attempt))
        if goes_on or over:
            yield from _stacks(overview, trial, chunk)
        if goes_on:
            attempt, rank, offset = _following(overview, trial, chunk.attempt), options.rank, 0
        elif over:
            return
        else:
            time.sleep(LOOK_S)


def _following(overview: Overview, trial: int, attempt: int) -> int:
    """Return the number of the attempt after `attempt`; a database that was restored may have left some out."""
    later = [each.number for each in overview.attempts if each.trial == trial and each.number > attempt]
    return min(later, default=attempt + 1)


def _stacks(overview: Overview, trial: int, chunk: LogChunk) -> Iterator[LogChunk]:
    text = hang_text(overview, trial, chunk.attempt)
    if text:
        between = "\n" if chunk.size else ""  # the log's last line may have no end
        yield chunk.model_copy(update={"text": f"{between}{text}\n"})


def _lines(chunks: Iterator[LogChunk]) -> Iterator[str]:
    """Whole lines; what is left at the end gets its newline."""
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


def _logs_arguments(parser: OptionParser) -> None:
    takes_one(parser)
    parser.add_argument("--rank", metavar="N", type=count, help="whose [the one that failed first, else 0]")
    parser.add_argument("--attempt", metavar="N", type=count, help="of which attempt [the newest]")
    parser.add_argument("--grep", metavar="REGEX", default="", help="only lines that it matches")
    parser.add_argument("--follow", action="store_true", help="stay, and print what comes until the trial has ended")
    takes_json(parser)


LOGS = Verb(
    "logs",
    "print what a rank has printed",
    _logs,
    _logs_arguments,
    ("logs 12 --follow", "logs 12.1-2 --rank 1", "logs 12 --grep Error"),
)
