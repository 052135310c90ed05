"""Define the verbs register, models and model: versions of models, and aliases that move between them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from kernel_backend.client import Client
from kernel_backend.commands.answer import Answer, Table, Text
from kernel_backend.commands.checkpoints import CheckpointList, named, selector, step_of
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument, count
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.checkpoints import CheckpointSelector, choose
from kernel_backend.model.ids import parse_alias, parse_model
from kernel_backend.model.record import checked
from kernel_backend.model.register.history import aliases_at
from kernel_backend.model.register.records import Model, ModelEdit, Registered
from kernel_backend.text import register as words

ROWS = 20  # newest entries of a log


class Period(NamedTuple):
    """Time that a user asks about, in seconds since the epoch: an instant, or a day if `until` is later."""

    since: float
    until: float


def parse_period(text: str) -> Period:
    """Parse a date, or a date with a time, in ISO 8601; without an offset it is local time. Raises InvalidRequest."""
    whole_day = re.fullmatch(r"\d{4}-?\d{2}-?\d{2}", text.strip()) is not None
    try:
        begin = datetime.fromisoformat(text.strip())
        end = begin + timedelta(days=1) if whole_day else begin  # in local time: a day may have 23 hours
        return Period(begin.timestamp(), end.timestamp())
    except (ValueError, OverflowError):  # the latter for the year 9999
        example = "2026-09-01, '2026-09-01 14:30' or 2026-09-01T14:30+02:00"
        raise InvalidRequest(f"--at {text}: write a date such as {example}") from None


def register(client: Client, found: CheckpointList, name: str, which: CheckpointSelector, note: str = "") -> Registered:
    """Register the checkpoint that `which` selects among those that are `found` as a version of a model."""
    info = choose(found.infos, found.metric, which)
    return client.register(found.number, info.trial, info.id, name, note)


def _register(call: Call) -> Answer:
    options = call.arguments
    found, which = named(call), selector(options)
    if not which.given:
        which = CheckpointSelector(best=True)
    made = register(call.client, found, options.name, which, options.note or "")
    return Answer(made, [Text(words.registered_lines(made, call.command))])


def _models(call: Call) -> Answer:
    found, me = call.client.models(), call.client.me().person.name
    rows = [words.model_row(each, me) for each in found]
    return Answer({"models": found}, [Table(words.MODEL_HEAD, rows, "no model is registered", ("registered",))])


def _model(call: Call) -> Answer:
    options, name = call.arguments, call.arguments.name
    edits = {act: getattr(options, act) for act in ("set", "unset", "remove", "protect", "unprotect")}
    given = {act: value for act, value in edits.items() if value is not None}
    if len(given) > 1 or (given and options.at is not None):
        raise InvalidRequest("one change at a time: give one of --set, --unset, --remove, --protect and --unprotect")
    if not given and (options.note is not None or options.expect is not None):
        raise InvalidRequest(f"--note and --expect belong to a change: {call.command} {name} --set production=3")
    if given:
        edit, lines = _edit(given, options.note or "", options.expect), list[str]()
        if options.remove is not None:
            gone = call.client.model_version(f"{name}@{options.remove}")
            unpin = f"{call.program} checkpoint unpin {gone.experiment}.{gone.trial} --step {gone.step}"
            lines = [f"version {gone.version} is removed; its checkpoint stays until {unpin}"]
        model = call.client.change_model(name, edit)
        lines.insert(0, f"{name}: {words.aliases_text(model.aliases, model.protected) or 'no alias is set'}")
        return Answer(model, [Text(lines)])
    if parse_model(name).which and options.at is None:
        version = call.client.model_version(name)
        return Answer(version, [Text(words.version_lines(version))])
    model = call.client.model(name)
    return _shown(model) if options.at is None else _at(model, options.at)


def _edit(given: Mapping[str, Any], note: str, expect: int | None) -> ModelEdit:
    ((act, value),) = given.items()
    fields: dict[str, Any] = {"act": act, "note": note, "expect": expect}
    if act == "set":
        alias, sign, version = value.partition("=")
        if not sign:
            raise InvalidRequest(f"--set {value}: write an alias and a version, such as production=3")
        fields |= {"alias": parse_alias(alias), "version": count(version)}
    elif act == "remove":
        fields["version"] = value
    else:
        fields["alias"] = parse_alias(value)
    return checked(ModelEdit, **fields)


def _shown(model: Model) -> Answer:
    versions = [words.version_row(each, model) for each in reversed(model.versions)]
    log = [words.log_row(each) for each in reversed(model.log[-ROWS:])]
    tables = [
        Table(words.VERSION_HEAD, versions, "all versions are removed", ("note", "by", "step")),
        Table(words.LOG_HEAD, log, "nothing has changed"),
    ]
    state = words.aliases_text(model.aliases, model.protected) or "none"
    return Answer(model, [Text([f"aliases: {state}"]), *tables])


def _at(model: Model, period: Period) -> Answer:
    """Return what each alias was at a time; for a whole day, what it was as the day began, and its moves that day."""
    aliases = aliases_at(model.log, period.since)
    moves = [each for each in model.log if period.since < each.at < period.until and each.alias]
    lines = [f"at {words.clock_text(period.since)}: {words.aliases_text(aliases) or 'no alias was set'}"]
    tables = [Table(words.LOG_HEAD, list(map(words.log_row, moves)), "")] if moves else []
    if moves:
        lines.append(f"then, before {words.clock_text(period.until)}:")
    body = {"at": period.since, "until": period.until, "aliases": aliases, "moves": moves}
    return Answer(body, [Text(lines), *tables])


VERBS = (
    Verb(
        "register",
        "register a checkpoint as the next version of a model, which is kept as long as it is registered",
        _register,
        (
            NUMBER,
            argument("--as", metavar="NAME", dest="name", required=True, help="the model, as memes or vision/memes"),
            argument("--best", action="store_true", help="the best by the experiment's metric (default)"),
            argument("--latest", action="store_true", help="the newest"),
            argument("--step", metavar="S", type=step_of, help="the one of this step", complete="step"),
            argument("--note", metavar="TEXT", help="what it is"),
            JSON,
        ),
        ("register 12 --as memes", "register 12.3 --as memes --step 500 --note 'trained on the cleaned labels'"),
        client=("register",),
        job=("register",),
    ),
    Verb(
        "models",
        "list registered models, with their newest versions and aliases",
        _models,
        (JSON,),
        ("models",),
        takes="nothing",
        client=("models",),
    ),
    Verb(
        "model",
        "show a model: versions, aliases and their log; move an alias, or remove a version",
        _model,
        (
            argument(
                "name",
                metavar="NAME",
                help="the model, as memes or vision/memes, or a version, as memes@3",
                complete="model",
                type=lambda text: str(parse_model(text)),
            ),
            argument(
                "--at",
                metavar="DATE",
                type=parse_period,
                help="what each alias was then: a date, with a time or without",
            ),
            argument("--set", metavar="ALIAS=N", help="let an alias name version N, as production=3"),
            argument("--unset", metavar="ALIAS", help="let an alias name nothing"),
            argument("--expect", metavar="N", type=count, help="only if the alias names version N now; 0: nothing"),
            argument("--note", metavar="TEXT", help="why, for the log"),
            argument("--remove", metavar="N", type=count, help="take version N out of the model"),
            argument("--protect", metavar="ALIAS", help="let only admins move an alias"),
            argument("--unprotect", metavar="ALIAS", help="let others move it again (admins)"),
            JSON,
        ),
        (
            "model memes",
            "model memes@production",
            "model memes --set production=3 --note 'better on the new labels'",
            "model memes --set production=4 --expect 3",
            "model memes --at 2026-09-01",
            "model memes --remove 2",
        ),
        takes="a model",
        client=("model", "model_version", "change_model"),
    ),
)
