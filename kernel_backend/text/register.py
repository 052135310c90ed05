"""Format registered models: versions, aliases, and the log of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from kernel_backend.model.register.records import Model, ModelChange, ModelVersion, Registered
from kernel_backend.text import number

MODEL_HEAD = ("model", "versions", "newest", "aliases", "experiment", "registered")
VERSION_HEAD = ("version", "aliases", "checkpoint", "step", "metric", "by", "registered", "note")
LOG_HEAD = ("time", "by", "change", "why")


def clock_text(at: float) -> str:
    """Format a time (seconds since the epoch) as local time with its offset: `2026-09-01 14:03:22 +0200`."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def model_title(model: Model, me: str) -> str:
    """Return the name by which the user `me` addresses a model: `memes`, or `vision/memes` for one of a group."""
    return model.name if model.owner == me else f"{model.owner}/{model.name}"


def model_row(model: Model, me: str) -> tuple[str, ...]:
    """Return a model's row in the table with the head `MODEL_HEAD`."""
    newest = model.versions[-1] if model.versions else None
    return (
        model_title(model, me),
        str(len(model.versions)),
        str(newest.version) if newest else "",
        aliases_text(model.aliases, model.protected),
        f"{newest.experiment}.{newest.trial}" if newest else "",
        clock_text(newest.at) if newest else "",
    )


def version_row(version: ModelVersion, model: Model) -> tuple[str, ...]:
    """Return a version's row in the table with the head `VERSION_HEAD`."""
    value = version.metric.of(version.metrics)
    return (
        str(version.version),
        ", ".join(alias for alias, number in model.aliases.items() if number == version.version),
        version.reference,
        str(version.step),
        "" if value is None else f"{version.metric.name} {number(value)}",
        version.who,
        clock_text(version.at),
        version.note,
    )


def version_lines(version: ModelVersion) -> list[str]:
    """Return lines about one version, with what was known when it was registered."""
    metrics = ", ".join(f"{name} {number(value)}" for name, value in version.metrics.items())
    facts = {
        "checkpoint": f"{version.reference}, step {version.step}",
        "digest": version.digest,
        "metrics": metrics,
        "guarantee": version.guarantee,
        "data": version.data,
        "code": version.snapshot[:12],
        "registered": f"{clock_text(version.at)} by {version.who}",
        "note": version.note,
    }
    return [version.title, *(f"  {name:12}{value}" for name, value in facts.items() if value)]


def log_row(change: ModelChange) -> tuple[str, ...]:
    """Return a row of the table with the head `LOG_HEAD`."""
    return clock_text(change.at), change.who, _change(change), change.note


def aliases_text(aliases: Mapping[str, int], protected: Iterable[str] = ()) -> str:
    """Return aliases with their versions: `candidate 4, production 3 (protected)`."""
    marked = dict.fromkeys(protected, " (protected)")
    return ", ".join(f"{alias} {number}{marked.get(alias, '')}" for alias, number in aliases.items())


def registered_lines(made: Registered, command: str) -> list[str]:
    """Return lines about the version that a checkpoint has become, or has been before."""
    version = made.version
    what = f"checkpoint {version.checkpoint} of {version.experiment}.{version.trial}"
    if not made.new:
        return [f"{what} is {version.title} already, since {clock_text(version.at)}"]
    program, name = command.partition(" ")[0], version.title.rpartition(" ")[0]
    hint = f"to name it: {program} model {name} --set production={version.version}"
    return [f"{what} is {version.title}, every byte verified; it is kept as long as it is registered", hint]


def _change(change: ModelChange) -> str:
    if change.act == "register":
        return f"version {change.version} registered"
    if change.act == "remove":
        return f"version {change.version} removed"
    if change.act in ("set", "unset"):
        return f"{change.alias} {change.before or 'unset'} -> {change.version or 'unset'}"
    return f"{change.alias} {'protected' if change.act == 'protect' else 'not protected any more'}"
