"""Convert parsed options to a configuration, and a configuration back to options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.allocations import SHORTEST_S
from kernel_backend.model.experiment import (
    LOG_POLICIES,
    AutoBatch,
    Cadence,
    Config,
    LogPolicy,
    parse_cadence,
    parse_duration,
    parse_keep,
    parse_metric,
    parse_slot_time,
)
from kernel_backend.model.ids import ModelReference, parse_reference, parse_source, parse_subject
from kernel_backend.model.record import Record, Value
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.registry import method_of
from kernel_backend.model.sizes import parse_size, size_word
from kernel_backend.model.values import written
from kernel_backend.spec.assignments import parse_value
from kernel_backend.spec.options import OPTIONS
from kernel_backend.spec.other_tools import method_meant
from kernel_backend.spec.slots import parse_range

_FLAGS = {option.config: option.flags[0] for option in OPTIONS if option.config}
_FLAGS["auto_batch.most"] = _FLAGS["batch_size"]
_FLAGS["search.max_time"] = _FLAGS["max_time"]  # one option for both: in a search it limits the whole search

# The largest value of each setting, by its field of Config.
BOUNDS = {option.config: option.most for option in OPTIONS if option.config and option.most is not None}
BOUNDS |= {
    "auto_batch.most": BOUNDS["batch_size"],
    "search.max_time": BOUNDS["max_time"],
    "until": BOUNDS["steps"],
}


def to_config(namespace: argparse.Namespace) -> Config:
    """Return the configuration for parsed options; raises InvalidRequest such as `--epochs -3: must be at least 1`."""
    given = specified_settings(namespace)
    search = given.get("search", {})
    if search and "method" not in search:
        if list(search) == ["warm"]:
            earlier = search["warm"][0]
            raise InvalidRequest(
                f"--warm {earlier} gives the trials of a search what #{earlier.partition('.')[0]} found: write "
                f"--from {earlier} to begin with its best weights, or add --search asha"
            )
        raise InvalidRequest(f"{_FLAGS[f'search.{next(iter(search))}']} belongs to a search: add --search asha")
    return _validated(given)


def specified_settings(namespace: argparse.Namespace) -> dict[str, Any]:
    """Return only the options that a user specified, as fields of Config; raises the same errors as `to_config`."""
    given: dict[str, Any] = {}
    for option in OPTIONS:
        value = getattr(namespace, option.dest, None) if option.config else None
        if option.config and value is not None:
            given[option.config] = value
    given |= {name: _parsed(name, given[name]) for name in _PARSERS if name in given}
    if "batch_size" in given:  # a number replaces an earlier `auto`, and the other way round
        asked = given["batch_size"]
        given |= asked if isinstance(asked, dict) else {"auto_batch": None}
    if "slots" in given:
        asked = given["slots"]
        given |= asked if isinstance(asked, dict) else {"least_slots": None}
    if "steps" in given and "epochs" in given:
        raise InvalidRequest("--steps and --epochs exclude each other: --steps says how many there are in all")
    if "max_time" in given and any(name.startswith("search.") for name in given):
        given["search.max_time"] = given.pop("max_time")
    given = _nested(given)
    _validated(given)
    return given


def _nested(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with dotted names as nested ones: `{"search.eta": 3}` as `{"search": {"eta": 3}}`."""
    found: dict[str, Any] = {}
    for path, value in given.items():
        record, _, field = path.rpartition(".")
        (found.setdefault(record, {}) if record else found)[field] = value
    if "method" in found.get("search", {}):
        name, _, source = str(found["search"]["method"]).partition(":")
        if source and method_of(name).own_class:
            found["search"] |= {"method": name, "source": source}
        else:
            found["search"]["method"] = method_meant(found["search"]["method"])
        method_of(found["search"]["method"])  # raises InvalidRequest for an unknown method
    return found


def _validated(given: dict[str, Any]) -> Config:
    try:
        config = Config.model_validate(given)
    except ValidationError as error:
        raise InvalidRequest("; ".join(_complaint(dict(found)) for found in error.errors())) from None
    check_bounds(config)
    return config


def check_bounds(config: Config) -> None:
    """Raise InvalidRequest, which names each number in a configuration above the bound for new experiments.

    `Config` does not check these bounds, so that configurations stored by older versions can be read.
    """
    wrong = [
        f"{_FLAGS.get(path, path)} {_shown(path, value)}: must be at most {_shown_bound(path, most)}"
        for path, most in BOUNDS.items()
        for value in [_field(config, path)]
        if any(number > most for number in _numbers(value))
    ]
    if wrong:
        raise InvalidRequest("; ".join(wrong))


def _field(config: Config, path: str) -> Any:
    """Return the value at a dotted path of the configuration, such as `search.eta`; None if there is no search."""
    record, _, field = path.rpartition(".")
    return getattr(getattr(config, record) if record else config, field, None)


def _numbers(value: Any) -> Iterator[float]:
    """Yield all numbers in a setting's value, including those in fields of a record."""
    if isinstance(value, Record):
        for name in type(value).model_fields:
            yield from _numbers(getattr(value, name))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _shown(path: str, value: Any) -> str:
    return " ".join(_WRITERS.get(path, lambda value: [[str(value)]])(value)[0])


def _shown_bound(path: str, most: float) -> str:
    lengths = (parse_slot_time, _allocation_length)
    if _PARSERS.get(path.removeprefix("search.")) is parse_duration or _PARSERS.get(path) in lengths:
        return duration_word(most)
    return f"{most:,}" if isinstance(most, int) else f"{most:g}"


def _log_policies(pairs: Sequence[Sequence[str]]) -> tuple[LogPolicy, ...]:
    for pattern, action in pairs:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidRequest(f"{pattern!r} is no regular expression: {error}") from None
        if action not in ("cancel_retries", "exclude_node"):
            raise InvalidRequest(f"{action!r} is no action: write cancel_retries or exclude_node")
    given = tuple(LogPolicy.model_validate({"pattern": pattern, "action": action}) for pattern, action in pairs)
    return (*given, *(policy for policy in LOG_POLICIES if policy.pattern not in {each.pattern for each in given}))


def _metric_patterns(texts: Sequence[str]) -> tuple[str, ...]:
    for text in texts:
        try:
            names = re.compile(text).groupindex
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidRequest(f"{text!r} is no regular expression: {error}") from None
        if not names:
            raise InvalidRequest(f"{text!r} names no number: write a group such as (?P<accuracy>[\\d.]+)")
    return tuple(texts)


def _batch_size(text: str) -> Any:
    """Parse the value of `--batch-size`: a number is returned as text, unchanged.

    For `auto` and `auto:256`, fields of Config are returned as a dict.
    """
    word, colon, most = str(text).partition(":")
    if word != "auto":
        return text
    if colon and not (most.isdecimal() and int(most)):
        raise InvalidRequest("write auto, or auto:256 for at most 256 samples")
    return {
        "batch_size": Config.model_fields["batch_size"].default,
        "auto_batch": AutoBatch(most=int(most) if most else None).model_dump(),
    }


def _slots(text: str) -> Any:
    """Parse the value of `--slots`: a number is returned as text, unchanged.

    For a range such as `1..4`, fields of Config are returned as a dict.
    """
    return parse_range(str(text))._asdict() if ".." in str(text) else text


def _references(texts: Sequence[str]) -> tuple[str, ...]:
    """Split texts such as `12,12.7` into references to experiments and trials, each in normal form."""
    found = []
    for part in (part for text in texts for part in text.split(",")):
        subject = parse_subject(part) if "@" in part else parse_reference(part)
        if isinstance(subject, ModelReference):
            raise InvalidRequest(f"--warm {part}: to begin with the weights of a model, write --from {subject}")
        found.append(subject)
    return tuple(f"{each.experiment}.{each.trial}" if each.trial else str(each.experiment) for each in found)


def _source(text: str) -> str:
    """Return what `--from` names, in normal form: an experiment, a trial, its checkpoint, or a version of a model."""
    return str(parse_source(text))


def _own_options(texts: Sequence[str]) -> dict[str, Value]:
    """Parse the values of `--search-option`, such as `temperature=2`, to a dict by name.

    These are options that only one search method has.
    """
    found: dict[str, Value] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value:
            raise InvalidRequest(f"{text!r} is no option of a search method: write NAME=VALUE")
        found[name] = parse_value(value, text)
    return found


def _allocation_length(text: str) -> float:
    """Return the value of `--keep-allocation` in seconds: `4h` gives 14400, and `no` gives 0.

    It is the length of a cluster's job in which trials of a search run one after another. Raises InvalidRequest if it
    is too short.
    """
    if text == "no":
        return 0.0
    seconds = parse_duration(text)
    if seconds < SHORTEST_S:
        raise InvalidRequest(f"must be at least {duration_word(SHORTEST_S)}, or no: a job for each trial")
    return seconds


def _validation_cadence(text: str) -> Cadence:
    """Parse the interval between validations, such as `500steps` or `1epoch`; raises InvalidRequest for seconds."""
    every = parse_cadence(text)
    if every.seconds is not None:
        raise InvalidRequest("validations are counted in epochs or steps: write 1epoch or 500steps")
    return every


def _values(text: str) -> str | int:
    """Parse what a cell gives back: `on`, `rng`, `off`, or the bytes of a size; raises InvalidRequest for any other."""
    if text in ("on", "rng", "off"):
        return text
    try:
        return parse_size(text)
    except InvalidRequest:
        raise InvalidRequest(f"{text!r} is none of on, rng and off, and no size such as 4GB") from None


# Parsers of options' texts into fields of Config; pydantic parses the others.
_ON_NAN = {"stop": "fail", "note": "go-on"}  # written form -> stored form; stored forms are accepted, too
_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "batch_size": _batch_size,
    "checkpoint_every": parse_cadence,
    "validate_every": _validation_cadence,
    "hang_timeout": parse_duration,
    "keep": parse_keep,
    "loader_workers": lambda text: None if text == "auto" else text,
    "metric": parse_metric,
    "metric_pattern": _metric_patterns,
    "on_log": _log_policies,
    "on_nan": lambda text: _ON_NAN.get(text, text),
    "slots": _slots,
    "search.budget": parse_slot_time,
    "values": _values,
    "max_time": parse_duration,
    "search.keep_allocation": _allocation_length,
    "search.options": _own_options,
    "search.warm": _references,
    "weights_from": _source,
}


def to_options(config: Config) -> list[str]:
    """Return the options that yield this configuration, with all values: `["--slots", "2", "--epochs", "10", ...]`."""
    return [word for words in written_options(config) for word in words]


def written_options(config: Config) -> Iterator[Sequence[str]]:
    """Yield the words of each option that `to_options` returns: `["--slots", "2"]`."""
    for option in OPTIONS:
        value = _value(config, option.config) if option.config else None
        if value is None or (option.config == "epochs" and config.steps is not None):
            continue
        write = _WRITERS.get(option.config or "", lambda value: [[str(value)]])
        yield from ([option.flags[0], *words] for words in write(value))


def _value(config: Config, path: str) -> Any:
    """Return the value of an option in a configuration, given its dotted path such as `search.eta`.

    Returns None for an option that need not be written: any search option without a search, or one with its default.
    """
    record, _, field = path.rpartition(".")
    search = config.search
    if path == "batch_size" and config.auto_batch is not None:
        return "auto" if config.auto_batch.most is None else f"auto:{config.auto_batch.most}"
    if path == "slots":
        return config.slot_range
    if path == "max_time":
        return search.max_time if search else config.max_time
    if not record:
        return getattr(config, field)
    if search is None:
        return None
    if field == "method":
        return f"{search.method}:{search.source}" if search.source else search.method
    value = getattr(search, field)
    return None if value == Search.model_fields[field].default else value


def specified_options(namespace: argparse.Namespace) -> list[str]:
    """Return the options for labels, display and waiting that a user specified: `["--name", "digits", "--wait"]`."""
    found: list[str] = []
    for option in OPTIONS:
        value = getattr(namespace, option.dest, None)
        if option.group != "view" and option.dest != "again":
            continue
        if option.kwargs.get("action") == "append":
            found += [word for each in value or () for word in (option.flags[0], str(each))]
        elif "action" not in option.kwargs:
            found += [option.flags[0], str(value)] if value is not None else []
        elif value is option.kwargs.get("const", True):
            found.append(option.flags[0])
    return found


def duration_word(seconds: float) -> str:
    """Format seconds in the form that `parse_duration` reads: `10m`."""
    unit = next((unit for unit in ("h", "m") if seconds and not seconds % parse_duration(f"1{unit}")), "s")
    count = seconds / parse_duration(f"1{unit}")
    return f"{int(count) if count.is_integer() else count}{unit}"


# The reverse of _PARSERS: the words after an option, for each of its occurrences.
_WRITERS: Mapping[str, Callable[[Any], list[list[str]]]] = {
    "checkpoint_every": lambda every: [[_cadence_text(every)]],
    "validate_every": lambda every: [[_cadence_text(every)]],
    "hang_timeout": lambda seconds: [[duration_word(seconds)]],
    "keep": lambda keep: [[",".join(f"{name}:{count}" for name, count in keep if count)]],
    "metric": lambda metric: [[f"{metric.name}:{metric.mode}"]],
    "metric_pattern": lambda patterns: [[each] for each in patterns],
    "on_log": lambda policies: [[each.pattern, each.action] for each in policies if each not in LOG_POLICIES],
    "on_nan": lambda stored: [[next((word for word, each in _ON_NAN.items() if each == stored), stored)]],
    "values": lambda stored: [[size_word(stored) if isinstance(stored, int) else stored]],
    "search.stopping": lambda _: [[]],
    "search.budget": lambda seconds: [[duration_word(seconds)]],
    "max_time": lambda seconds: [[duration_word(seconds)]],
    "search.max_time": lambda seconds: [[duration_word(seconds)]],
    "search.keep_allocation": lambda seconds: [[duration_word(seconds) if seconds else "no"]],
    "one_node": lambda on: [[]] if on else [],
    "gather_loss": lambda on: [[]] if on else [],
    "sync_bn": lambda on: [[]] if on else [],
    "rehearse": lambda on: [] if on else [[]],
    "per_slot_batch": lambda on: [[]] if on else [],
    "compile": lambda on: [[]] if on else [],
    "validate_first": lambda on: [[]] if on else [],
    "await_evaluation": lambda on: [[]] if on else [],
    "preemptible": lambda on: [[]] if on else [],
    "priority": lambda priority: [[str(priority)]] if priority else [],
    "search.options": lambda options: [[f"{name}={written(value)}"] for name, value in options.items()],
    "search.warm": lambda references: [[each] for each in references],
}


def _cadence_text(every: Cadence) -> str:
    if every.seconds is not None:
        return duration_word(every.seconds)
    return f"{every.epochs}epochs" if every.epochs is not None else f"{every.steps}steps"


def _parsed(name: str, value: Any) -> Any:
    try:
        return _PARSERS[name](value)
    except InvalidRequest as error:
        last = value if isinstance(value, str) else value[-1]
        said = last if isinstance(last, str) else " ".join(last)
        raise InvalidRequest(f"{_FLAGS[name]} {said}: {error.message}") from None


def _complaint(found: dict[str, Any]) -> str:
    field, inner = (*found["loc"], "")[:2]
    flag = _FLAGS.get(f"{field}.{inner}") or _FLAGS.get(field) or "--" + str(field).replace("_", "-")
    limits = found.get("ctx", {})
    if "ge" in limits:
        reason = f"must be at least {limits['ge']}"
    elif "le" in limits:
        reason = f"must be at most {limits['le']}"
    elif "gt" in limits:
        reason = f"must be greater than {limits['gt']:g}"
    elif "lt" in limits:
        reason = f"must be less than {limits['lt']}"
    elif "expected" in limits:
        reason = f"must be {str(limits['expected']).replace(chr(39), '')}"
    elif found["type"].startswith(("int", "float")):
        reason = "must be a number" if found["type"].startswith("float") else "must be a whole number"
    else:
        reason = found["msg"]
    return f"{flag} {found['input']}: {reason}"
