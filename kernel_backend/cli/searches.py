"""The verbs of searches: their trials, and steering them by hand."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable

from jupyter_ext.standing import best_rows, extension
from kernel_backend.cli.output import print_json, print_table, tell
from kernel_backend.cli.verb import OK, Verb, count, takes_json, takes_one
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.options import OptionParser
from kernel_backend.model.overview import Overview
from kernel_backend.text import head_text, search_text

NONE = "no trials yet"


def _best(options: Namespace) -> int:
    return _table(options, "best")


def _trials(options: Namespace) -> int:
    return _table(options, options.sort)


def _table(options: Namespace, sort: str) -> int:
    client, number = Client.connect(), options.reference.experiment
    if options.json:
        print_json({"trials": client.trial_rows(number, sort, options.count)})
    else:
        head, rows = best_rows(client, number, options.count, sort)
        print_table(head, rows, NONE)
    return OK


def _best_arguments(parser: OptionParser) -> None:
    takes_one(parser)
    parser.add_argument("-n", dest="count", metavar="N", type=count, default=10, help="at most so many [10]")
    takes_json(parser)


def _trials_arguments(parser: OptionParser) -> None:
    takes_one(parser)
    sorts = "a column, such as trial, best, state, seconds or lr; -lr turns it round [trial]"
    parser.add_argument("--sort", metavar="COLUMN", default="trial", help=sorts)
    parser.add_argument("-n", dest="count", metavar="N", type=count, default=1000, help="at most so many [1000]")
    takes_json(parser)


def _steer(name: str, text: str, change: Callable[[Client, int, int], Overview]) -> Verb:
    def act(options: Namespace) -> int:
        number, trial = options.reference.experiment, options.reference.trial
        if trial is None:
            raise InvalidRequest(f"{name} is about one trial: write daylight {name} {number}.7")
        return _tell(change(Client.connect(), number, trial), options)

    def arguments(parser: OptionParser) -> None:
        takes_one(parser)
        takes_json(parser)

    return Verb(name, text, act, arguments, (f"{name} 12.7",))


def _extend(options: Namespace) -> int:
    asked = extension(options.trials, options.budget, options.max_time)
    return _tell(Client.connect().extend(options.reference.experiment, asked), options)


def _extend_arguments(parser: OptionParser) -> None:
    takes_one(parser)
    parser.add_argument("--trials", metavar="N", type=count, help="so many trials in all")
    parser.add_argument("--budget", metavar="TIME", help="slot time of all trials, in all: 20gpuh, 2slot-h, 30m")
    parser.add_argument("--max-time", metavar="TIME", help="time since the submission, in all: 8h")
    takes_json(parser)


def _tell(overview: Overview, options: Namespace) -> int:
    if options.json:
        print_json(overview)
    else:
        tell("\n".join([head_text(overview, time.time()), search_text(overview)]))
    return OK


VERBS = (
    Verb("best", "list the best trials of a search", _best, _best_arguments, ("best 12", "best 12 -n 3 --json")),
    Verb(
        "trials",
        "list the trials of a search",
        _trials,
        _trials_arguments,
        ("trials 12 --sort=-lr", "trials 12 --json"),
    ),
    _steer("promote", "let a trial of a search go on next, whatever its rank", Client.promote),
    _steer("prune", "give a trial of a search up for good", Client.prune),
    Verb(
        "extend",
        "let a search have more trials or time; a completed one goes on",
        _extend,
        _extend_arguments,
        ("extend 12 --trials 100", "extend 12 --budget 40gpuh"),
    ),
)
