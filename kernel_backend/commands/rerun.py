"""Define the verbs that run an experiment's snapshot again: rerun and verify."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kernel_backend.client import Client
from kernel_backend.commands.answer import FAILED, OK, Answer, Started, Text
from kernel_backend.commands.restored_data import RestoredData, Submitted, restore_data
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.diff import Diff, Rerun
from kernel_backend.model.environments import packages
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.ids import Reference, whole
from kernel_backend.model.labels import UNLABELLED, Labels
from kernel_backend.model.record import Value, checked
from kernel_backend.model.search.records import Search
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.trial import checkpoint_step
from kernel_backend.model.views.overview import Overview
from kernel_backend.secret_scan import known_secrets, leaks_on_the_line
from kernel_backend.snapshots.archive import contents
from kernel_backend.snapshots.environment import record
from kernel_backend.spec.assignments import parse_assignments
from kernel_backend.spec.config_text import specified_settings
from kernel_backend.spec.labels import label_texts, labels_of
from kernel_backend.spec.options import TRUST, rerun_options

NAMED = 4  # packages that a sentence names


class Planned(NamedTuple):
    """Request to rerun an experiment, and notes on how the rerun will differ from the original training."""

    asked: Rerun
    notes: Sequence[str]


def plan(
    client: Client,
    number: int,
    params: Mapping[str, Value],
    settings: Mapping[str, Any],
    labels: Labels = UNLABELLED,
    data: Sequence[str] = (),
    trial: int | None = None,
    trust: str | None = None,
    checkpoint: str | None = None,
) -> Planned:
    """Return the request that reruns experiment `number`, with some hyperparameters and settings replaced.

    `settings` are fields of Config. If `trial` is set, only that trial of a search is rerun. If `checkpoint` is set,
    training continues from it. The rerun uses this interpreter if its packages match the recorded ones, else the
    packages of the lock; `settings` may override that. Declared data is restored as far as possible; `data`
    (NAME=PLACE) gives its current location. Another user's code is run only if `trust` names its owner. Raises
    NotFound, and InvalidRequest for a value that looks like a secret or a location without data.
    """
    if told := [message for _, message in leaks_on_the_line({**params, **label_texts(labels)}, known_secrets())]:
        raise InvalidRequest("\n".join(told))
    _, snapshot = client.source(number)
    given, notes = dict(settings), list[str]()
    if "epochs" in given:
        given["steps"] = None
    here = record()
    same = here.id == snapshot.environment.id
    if "env" not in given:
        given["env"] = "current" if same else "locked"
    if "env" not in settings and not same:
        found = ", ".join(map(str, packages(snapshot.environment, here)[:NAMED]))
        notes.append(f"the packages here are not those of #{number} ({found}): it trains in the locked environment")
    experiment = client.experiment(number).experiment
    if experiment.owner != client.me().person.name:
        notes.append(f"#{number} is {experiment.owner}'s: it is {experiment.owner}'s code that trains, as yours")
    if experiment.config.search is not None and trial is None and "max_time" in given:
        given["search"] = {**given.get("search", {}), "max_time": given.pop("max_time")}
    if "search" in given:
        given["search"] = _searched(experiment.config.search, given["search"])
        given["max_time"] = None  # for a single trial of a search: the limit was that of the search
    back = _data(client, experiment, snapshot, {**experiment.params, **params}, data)
    notes += [f"{each}, since #{number}: it is read as it was, by links" for each in back.notes]
    notes += [f"data is not as it was: {each}" for each in back.beyond]
    if back.data_at != experiment.config.data_at:
        given["data_at"] = back.data_at
    before = experiment.params
    other = {name: value for name, value in back.params.items() if name in params or value != before.get(name)}
    fields = {
        "trial": trial,
        "checkpoint": checkpoint,
        "params": other,
        "config": _plain(given),
        "python": sys.executable,
    }
    asked = checked(Rerun, **fields, **labels._asdict(), trust=trust)
    return Planned(asked, notes)


def _searched(before: Search | None, other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the search options of a rerun: those of the original search `before`, with those in `other` replaced.

    If the method changes, only limits that any method has (`parallel`, `budget`, `max_time`) are taken from the
    original. Raises InvalidRequest if the original was no search and `other` names no method.
    """
    if before is None and "method" not in other:
        raise InvalidRequest(f"--{next(iter(other)).replace('_', '-')} belongs to a search, and there was none")
    kept = before.model_dump(exclude_defaults=True) if before else {}
    if other.get("method", kept.get("method")) != kept.get("method"):
        kept = {name: value for name, value in kept.items() if name in ("parallel", "budget", "max_time")}
    return {**kept, **other}


def _data(
    client: Client, experiment: Experiment, snapshot: Snapshot, params: dict[str, Value], moved: Sequence[str]
) -> RestoredData:
    """Return the locations from which a rerun of an experiment reads its declared data.

    Each of `moved` is `NAME=PLACE`, a current location of data; `params` are the rerun's hyperparameters, of which some
    may hold locations. The snapshot's archive is downloaded only if there is declared data.
    """
    if not snapshot.data and not moved:
        return RestoredData(params, experiment.config.data_at)
    one = Submitted(experiment, snapshot, contents(client.archive(experiment.number)))
    return restore_data(one, one, params, moved)


def outcome_text(diff: Diff, verifies: bool = False) -> str:
    """Return a sentence such as `#97 is a rerun of #41: bit-identical: ...`; `verifies` replaces the verb."""
    what = "verifies" if verifies else "is a rerun of"
    return f"#{diff.b} {what} #{diff.a}: {diff.results.text}"


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return these fields of Config in the form that they have in JSON."""
    given = Config.model_validate(settings).to_json()
    return {name: given[name] for name in settings}


def _rerun(call: Call) -> Answer:
    options, (number, trial, _) = call.arguments, _reference(call)
    params = parse_assignments(options.words[1:])
    planned = plan(
        call.client,
        number,
        params,
        specified_settings(options),
        labels_of(options),
        options.data or (),
        trial,
        options.trust,
    )
    for note in planned.notes:
        call.console.note(note)
    overview = call.client.rerun(number, planned.asked)
    captured = [f"the snapshot of #{number}{f'.{trial}' if trial else ''} again", *planned.notes]
    compared = trial in (None, 1)  # results of other trials cannot be compared
    if call.console.waits(options.wait):
        return _waited(call, overview, captured, compared=compared)
    compares = f"{call.program} diff {number} {overview.experiment.number} tells whether its bits agree"
    return Answer(overview, [Started(call.client, overview, captured, compares if compared else "")])


def _continue(call: Call) -> Answer:
    options, (number, trial, _) = call.arguments, _reference(call)
    version = call.version_of(options.words[0])
    planned = plan(
        call.client,
        number,
        parse_assignments(options.words[1:]),
        specified_settings(options),
        labels_of(options),
        options.data or (),
        trial,
        options.trust,
        options.checkpoint or (version.checkpoint if version else "newest"),
    )
    for note in planned.notes:
        call.console.note(note)
    overview = call.client.rerun(number, planned.asked)
    _, _, checkpoint = str(overview.experiment.begins_from).partition("/")
    captured = [f"#{number}{f'.{trial}' if trial else ''} from step {checkpoint_step(checkpoint)} on", *planned.notes]
    if call.console.waits(options.wait):
        return _waited(call, overview, captured, compared=False)
    return Answer(overview, [Started(call.client, overview, captured)])


def _reference(call: Call) -> Reference:
    words = call.arguments.words
    if not words or "=" in words[0]:
        raise InvalidRequest(f"{call.command} takes an experiment first: write {call.command} 41 lr=0.1")
    return call.resolve(words[0])


def _verify(call: Call) -> Answer:
    number = whole(call.reference)
    planned = plan(call.client, number, {}, {}, trust=call.arguments.trust)
    for note in planned.notes:
        call.console.note(note)
    overview = call.client.retrain(number, planned.asked)
    since = overview.experiment.begins_from
    begins = f"step {checkpoint_step(since.partition('/')[2])}" if since else "the beginning"
    captured = [f"#{number} again from {begins} to step {overview.experiment.config.until}", *planned.notes]
    return _waited(call, overview, captured, verifies=True)


def _waited(
    call: Call, overview: Overview, captured: Sequence[str], *, compared: bool = True, verifies: bool = False
) -> Answer:
    """Wait for a rerun to end; return an answer that says how it ended.

    `captured` are sentences about its submission. With `compared`, the answer also says whether the results are
    bit-identical to the original's. With `verifies`, other results give the exit code of a failure.
    """
    ended, code = call.console.wait(call.client, overview, captured, bool(getattr(call.arguments, "quiet", False)))
    if ended is None or code != OK:
        return Answer(None, code=code)
    if not compared:
        return Answer(ended)
    origin = overview.experiment.rerun_of
    assert origin is not None
    found = call.client.diff(origin, overview.experiment.number)
    differs = verifies and not found.results.identical
    return Answer(found, [Text([outcome_text(found, verifies)])], code=FAILED if differs else OK)


RERUN = Verb(
    "rerun",
    "rerun an experiment's snapshot",
    _rerun,
    (
        argument(
            "words",
            nargs="*",
            metavar="NUMBER name=value",
            help="the experiment, or one trial of a search, and the changes",
            complete="experiment",
        ),
        *rerun_options(),
    ),
    ("rerun 41 --wait", "rerun 41 lr=0.1 --epochs 20", "rerun 12.7"),
    client=("rerun",),
    job=("rerun",),
)
CONTINUE = Verb(
    "continue",
    "continue an experiment from a checkpoint, longer or with other values",
    _continue,
    (
        argument(
            "words",
            nargs="*",
            metavar="NUMBER name=value",
            help="the experiment, or one trial of a search, and the changes from there on",
            complete="experiment",
        ),
        argument(
            "--checkpoint",
            metavar="WHICH",
            help="newest, best, or the step of one [newest, or that of the model]",
            complete="step",
        ),
        *rerun_options(),
    ),
    ("continue 41 --epochs 20", "continue 41 lr=1e-4 --epochs 20", "continue 12.7 --checkpoint best --epochs 50"),
    client=("rerun",),
    job=("continue_training",),
)
VERIFY = Verb(
    "verify",
    "rerun an experiment's first steps, and report whether they are bit-identical",
    _verify,
    (NUMBER, TRUST, JSON),
    ("verify 41",),
    client=("retrain",),
    job=("verify",),
)
