"""The options of a submission: one table, read by the notebook's magic and by the command line alike.

Options and `name=value` words mix in any order. Every option is None (or False) until it is given, so the
defaults live in one place, `Config`.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from pydantic import ValidationError

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import (
    LOG_POLICIES,
    Cadence,
    Config,
    LogPolicy,
    parse_cadence,
    parse_duration,
    parse_keep,
    parse_metric,
    parse_size,
)

Host = Literal["both", "notebook", "terminal"]
VIEWS = ("auto", "card", "widget")


@dataclass(frozen=True)
class Option:
    """One option: `kwargs` are those of `argparse.add_argument`, `config` the field of Config it sets."""

    flags: tuple[str, ...]
    group: str
    help: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    config: str | None = None
    host: Host = "both"

    @property
    def dest(self) -> str:
        """The attribute of the parsed namespace."""
        return str(self.kwargs.get("dest") or self.flags[0].removeprefix("--").replace("-", "_"))


def _setting(flag: str, group: str, metavar: str, text: str) -> Option:
    name = flag.removeprefix("--").replace("-", "_")
    return Option((flag,), group, text, {"metavar": metavar}, config=name)


def _switch(flag: str, group: str, text: str) -> Option:
    return Option((flag,), group, text, {"action": "store_true"})


def _list(flag: str, group: str, metavar: str, text: str, host: Host = "both") -> Option:
    return Option((flag,), group, text, {"metavar": metavar, "action": "append"}, host=host)


_VIEW = {"metavar": "KIND", "choices": VIEWS}
_NO_WAIT = {"action": "store_const", "const": False, "dest": "wait"}

OPTIONS: tuple[Option, ...] = (
    _setting("--slots", "resources", "N", "how many slots (GPUs, or shares of the CPU) train together [1]"),
    _setting("--backend", "resources", "NAME", "how they talk: auto, horovod or torch [auto]"),
    _setting("--device", "resources", "NAME", "auto or cpu: train on the CPU of a machine that has GPUs [auto]"),
    _setting("--threads", "resources", "N", "CPU threads of each slot [cores of the node / its slots]"),
    _setting("--logical-workers", "resources", "V", "as many ranks as the result counts: equal bits on any slots"),
    _setting("--epochs", "training", "N", "passes over the training data [1]"),
    _setting("--steps", "training", "N", "steps in all, instead of epochs"),
    _setting("--batch-size", "training", "N", "samples a step, over all slots together [32]"),
    _setting("--schedule-per", "training", "WHEN", "step or epoch: how often `schedule` is stepped [step]"),
    _setting("--amp", "training", "TYPE", "mixed precision: bf16 or fp16 [none]"),
    _setting("--ema", "training", "DECAY", "keep averaged weights too, such as 0.999 [none]"),
    _setting("--clip", "training", "NORM", "the largest norm of the gradients [none]"),
    _setting("--loader-workers", "training", "N", "processes of each slot that load samples, or auto [auto]"),
    _setting("--seed", "exactness", "N", "what all randomness comes from [0]"),
    _setting("--rng", "exactness", "KIND", "derived (from seed and step) or stream (as torch draws) [derived]"),
    _setting("--reproducible", "exactness", "SCOPE", "off, host or portable: where a rerun gives equal bits [host]"),
    _setting("--metric", "faults", "NAME", "what `best` means: loss, error:min or accuracy:max [loss]"),
    _setting("--checkpoint-every", "faults", "WHEN", "60s, 10m, 1epoch or 500steps [as often as is cheap]"),
    _setting("--keep", "faults", "RULES", "checkpoints to keep: best:1,latest:2 or best_overall:3 [best:1,latest:2]"),
    _setting("--max-restarts", "faults", "N", "restarts in a row without progress before it has failed [5]"),
    _setting(
        "--hang-timeout",
        "faults",
        "TIME",
        "without progress for so long, it hangs: 90s, 10m (slow phases: thrice) [10m]",
    ),
    Option(
        ("--on-log",),
        "faults",
        "PATTERN in the log of a failed attempt means cancel_retries or exclude_node; may be repeated",
        {"nargs": 2, "metavar": ("PATTERN", "ACTION"), "action": "append"},
        config="on_log",
    ),
    _list("--data", "data", "PATH", "folder, file or s3://... whose files are listed and compared; may be repeated"),
    _list("--commit", "data", "ID", "version of data kept by lakeFS, DVC or others, to be shown; may be repeated"),
    Option(("--name",), "view", "what to call it", {"metavar": "TEXT"}),
    Option(("--wait",), "view", "wait until it has ended", {"action": "store_const", "const": True}),
    Option(("--no-wait",), "view", "return at once", _NO_WAIT),
    _switch("--quiet", "view", "print the number only"),
    Option(("--view",), "view", "card, widget or auto: as the front end needs [auto]", _VIEW, host="notebook"),
    Option(("--out",), "view", "variable to put the job into", {"metavar": "VARIABLE"}, host="notebook"),
    _list("--include", "code", "PATH", "file, folder or glob that travels with the code; may be repeated"),
    _list("--capture", "code", "NAME", "a value of the notebook that travels in a file: train,test", host="notebook"),
    Option(("--project-limit",), "code", "how much of the project may travel: 200MB [64MB]", {"metavar": "SIZE"}),
    _setting("--env", "code", "NAME", "current (the packages there are) or locked (built as they were) [current]"),
    Option(
        ("--no-state-check",),
        "code",
        "train though values differ from the notebook's",
        {"action": "store_true"},
        host="notebook",
    ),
    _switch("--again", "code", "make another experiment though the same one goes on"),
    _switch("--dry-run", "code", "show what would be sent, and send nothing"),
    Option(("--json",), "view", "print JSON", {"action": "store_true"}, host="terminal"),
)


class OptionParser(argparse.ArgumentParser):
    """An argparse parser whose complaints are InvalidRequest, and which guesses no abbreviations."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        """Raise InvalidRequest, where argparse would end the process."""
        raise InvalidRequest(f"{message.removeprefix('argument ')}; see {self.prog} --help")

    def parse_mixed(self, tokens: Sequence[str]) -> argparse.Namespace:
        """The options, and every other word in written order as `words`; raises InvalidRequest."""
        namespace, unknown = self.parse_telling(tokens)
        if unknown:
            raise InvalidRequest("\n".join(unknown))
        return namespace

    def parse_telling(self, tokens: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """The same, and a sentence for each unknown option; raises InvalidRequest for a known one without a value."""
        namespace, rest = self.parse_known_args(tokens)
        unknown = [_unknown(token, self._option_string_actions) for token in rest if _is_option(token)]
        # What follows an unknown option is taken for its value.
        kept = [
            token
            for token, before in zip(rest, ["", *rest], strict=False)
            if not _is_option(token) and ("=" in token or not _is_option(before) or "=" in before)
        ]
        namespace.words = [*(getattr(namespace, "words", None) or ()), *kept]
        return namespace, unknown


def _is_option(token: str) -> bool:
    return token.startswith("-") and token != "-"


def _unknown(token: str, known: Mapping[str, Any]) -> str:
    name = token.split("=")[0]
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]}?" if near else "see --help for those there are"
    return f"there is no option {name}: {hint}"


def options_for(host: Host) -> tuple[Option, ...]:
    """The options that a magic (`notebook`) or the command line (`terminal`) has."""
    return tuple(option for option in OPTIONS if option.host in ("both", host))


def add_options(parser: argparse.ArgumentParser, host: Host) -> None:
    """Give `parser` the options of `host`, in their groups."""
    titles = dict.fromkeys(option.group for option in options_for(host))
    groups = {title: parser.add_argument_group(title) for title in titles}
    for option in options_for(host):
        groups[option.group].add_argument(*option.flags, help=option.help, **option.kwargs)


def add_rerun_options(parser: argparse.ArgumentParser, host: Host) -> None:
    """Those of them that mean something to a snapshot that is there already; none has a default of its own."""
    moved = _list(
        "--data", "data", "NAME=PLACE", "declared data is there now, a folder, file or s3://...; may be repeated"
    )
    parser.add_argument(*moved.flags, help=moved.help, **moved.kwargs)
    of_rerun = {"--name", "--wait", "--no-wait", "--quiet", "--json"}
    for option in options_for(host):
        if option.config or of_rerun & set(option.flags):
            text = re.sub(r" \[[^\]]*\]$", "", option.help)
            parser.add_argument(*option.flags, help=text, **option.kwargs)


def parse_options(tokens: Sequence[str], host: Host, prog: str = "%%dlsubmit") -> argparse.Namespace:
    """The options among `tokens`; whatever is none (files, `name=value`) is its `words`, in written order.

    Raises InvalidRequest for an unknown option, with the nearest one.
    """
    parser = OptionParser(prog=prog, add_help=False)
    add_options(parser, host)
    parser.set_defaults(words=[])
    return parser.parse_mixed(tokens)


def to_config(namespace: argparse.Namespace) -> Config:
    """The configuration asked for; raises InvalidRequest such as `--epochs -3: must be at least 1`."""
    return _validated(given_settings(namespace))


def given_settings(namespace: argparse.Namespace) -> dict[str, Any]:
    """Only what was given, as fields of Config; raises InvalidRequest as `to_config` does."""
    given: dict[str, Any] = {}
    for option in OPTIONS:
        value = getattr(namespace, option.dest, None) if option.config else None
        if option.config and value is not None:
            given[option.config] = value
    given |= {name: _parsed(name, given[name]) for name in _PARSERS if name in given}
    if "steps" in given and "epochs" in given:
        raise InvalidRequest("--steps and --epochs exclude each other: --steps says how many there are in all")
    _validated(given)
    return given


def _validated(given: dict[str, Any]) -> Config:
    try:
        return Config.model_validate(given)
    except ValidationError as error:
        raise InvalidRequest("; ".join(_complaint(dict(found)) for found in error.errors())) from None


def _log_policies(pairs: Sequence[Sequence[str]]) -> tuple[LogPolicy, ...]:
    for pattern, action in pairs:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidRequest(f"{pattern!r} is no regular expression: {error}") from None
        if action not in ("cancel_retries", "exclude_node"):
            raise InvalidRequest(f"{action!r} is no action: write cancel_retries or exclude_node")
    given = tuple(LogPolicy.model_validate({"pattern": pattern, "action": action}) for pattern, action in pairs)
    return (*given, *(policy for policy in LOG_POLICIES if policy.pattern not in {each.pattern for each in given}))


# How the text of an option becomes a field of Config; the others are read by pydantic.
_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "checkpoint_every": parse_cadence,
    "hang_timeout": parse_duration,
    "keep": parse_keep,
    "loader_workers": lambda text: None if text == "auto" else text,
    "metric": parse_metric,
    "on_log": _log_policies,
}


def to_words(config: Config) -> list[str]:
    """The options that give this configuration, all spelled out: `["--slots", "2", "--epochs", "10", ...]`."""
    found: list[str] = []
    for option in OPTIONS:
        value = getattr(config, option.config) if option.config else None
        if value is None or (option.config == "epochs" and config.steps is not None):
            continue
        write = _WRITERS.get(option.config or "", lambda value: [[str(value)]])
        found += [word for words in write(value) for word in (option.flags[0], *words)]
    return found


def given_words(namespace: argparse.Namespace) -> list[str]:
    """How it is to be called, shown and waited for, as it was given: `["--name", "digits", "--wait"]`."""
    found: list[str] = []
    for option in OPTIONS:
        value = getattr(namespace, option.dest, None)
        if option.group != "view" and option.dest != "again":
            continue
        if "action" not in option.kwargs:
            found += [option.flags[0], str(value)] if value is not None else []
        elif value is option.kwargs.get("const", True):
            found.append(option.flags[0])
    return found


def size_word(count: int) -> str:
    """A number of bytes as `parse_size` reads it: `10MB`."""
    unit = next((unit for unit in ("GB", "MB", "kB") if count and not count % parse_size(f"1{unit}")), "")
    return f"{count // parse_size(f'1{unit}')}{unit}" if unit else str(count)


def duration_word(seconds: float) -> str:
    """Seconds as `parse_duration` reads them: `10m`."""
    unit = next((unit for unit in ("h", "m") if seconds and not seconds % parse_duration(f"1{unit}")), "s")
    count = seconds / parse_duration(f"1{unit}")
    return f"{int(count) if count.is_integer() else count}{unit}"


# The reverse of _PARSERS: the words behind an option, for each time that it is given.
_WRITERS: Mapping[str, Callable[[Any], list[list[str]]]] = {
    "checkpoint_every": lambda every: [[_cadence_text(every)]],
    "hang_timeout": lambda seconds: [[duration_word(seconds)]],
    "keep": lambda keep: [[",".join(f"{name}:{count}" for name, count in keep if count)]],
    "metric": lambda metric: [[f"{metric.name}:{metric.mode}"]],
    "on_log": lambda policies: [[each.pattern, each.action] for each in policies if each not in LOG_POLICIES],
}


def _cadence_text(every: Cadence) -> str:
    if every.seconds is not None:
        return duration_word(every.seconds)
    return f"{every.epochs}epochs" if every.epochs is not None else f"{every.steps}steps"


def _parsed(name: str, value: Any) -> Any:
    try:
        return _PARSERS[name](value)
    except InvalidRequest as error:
        flag = "--" + name.replace("_", "-")
        said = value if isinstance(value, str) else " ".join(value[-1])
        raise InvalidRequest(f"{flag} {said}: {error.message}") from None


def _complaint(found: dict[str, Any]) -> str:
    flag = "--" + str(found["loc"][0]).replace("_", "-")
    limits = found.get("ctx", {})
    if "ge" in limits:
        reason = f"must be at least {limits['ge']}"
    elif "gt" in limits:
        reason = f"must be greater than {limits['gt']:g}"
    elif "lt" in limits:
        reason = f"must be less than {limits['lt']}"
    elif "expected" in limits:
        reason = f"must be {str(limits['expected']).replace(chr(39), '')}"
    else:
        reason = "must be a number" if found["type"].startswith("float") else "must be a whole number"
    return f"{flag} {found['input']}: {reason}"
