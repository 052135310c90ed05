"""Complete a command line: verbs, options, and values of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernel_backend.client import Client
from kernel_backend.commands.verb import Verb
from kernel_backend.errors import DaylightError
from kernel_backend.home import home
from kernel_backend.model.states import ExperimentState
from kernel_backend.model.views.overview import DELETED, LIVELIEST
from kernel_backend.spec.option_parser import options_for
from kernel_backend.spec.options import Candidates, Host, Option

STATES = tuple(dict.fromkeys(map(str, (*LIVELIEST, *ExperimentState, DELETED))))

Values = Callable[[Candidates], Sequence[str]]


def complete(verbs: Mapping[str, Verb], words: Sequence[str], word: str, host: Host, values: Values) -> list[str]:
    """Return the completions of `word`, the last word of a command line, after the other `words`.

    `host` is `terminal` or `notebook`. `values` returns the possible values of a kind of argument.
    """
    if words and words[0] in verbs:
        return complete_options(verbs[words[0]].arguments, words[1:], word, host, values)
    found = [*verbs, "help"] if not words else [*verbs] if words == ["help"] else []
    return [each for each in found if each.startswith(word)]


def complete_options(
    arguments: Sequence[Option], words: Sequence[str], word: str, host: Host, values: Values
) -> list[str]:
    """Return the completions of `word` after `words`, which are the verb's options and arguments so far.

    `host` is `terminal` or `notebook`. `values` returns the possible values of a kind of argument.
    """
    options = options_for(host, arguments)
    named = {flag: option for option in options for flag in option.flags if flag.startswith("-")}
    before = named.get(words[-1]) if words else None
    found: Sequence[str]
    if before is not None and "action" not in before.kwargs:
        found = _values(before, values)
    elif word.startswith("-"):
        found = [*named]
    else:
        found = [each for option in options if option not in named.values() for each in _values(option, values)]
    return [each for each in dict.fromkeys(found) if each.startswith(word)]


def live_values(kind: Candidates) -> Sequence[str]:
    """Return the values of a kind of argument, such as experiment numbers, from a running service.

    Empty if none runs.
    """
    if kind == "state":
        return STATES
    if kind not in ("experiment", "trial", "node", "model"):
        return []
    try:
        client = Client.at_home(home())
        if kind == "node":
            return [node.name for node in client.nodes()]
        if kind == "model":
            return [each.name for each in client.models()]
        return [str(each.experiment.number) for each in client.experiments()]
    except DaylightError:
        return []


def _values(option: Option, values: Values) -> Sequence[str]:
    return option.kwargs.get("choices") or (values(option.complete) if option.complete else [])
