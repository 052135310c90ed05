"""Complete a line of verbs: names, options, and the values of each kind of argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernel_backend.commands.verb import Verb
from kernel_backend.spec.options import Candidates, Host, Option, options_for

Values = Callable[[Candidates], Sequence[str]]


def complete(verbs: Mapping[str, Verb], words: Sequence[str], word: str, host: Host, values: Values) -> list[str]:
    """Return the completions of `word` after `words`; `values` looks up the values of a kind."""
    if not words:
        found: Sequence[str] = [*verbs, "help"]
    elif words[0] not in verbs:
        found = [*verbs] if words == ["help"] else []
    else:
        options = options_for(host, verbs[words[0]].arguments)
        named = {flag: option for option in options for flag in option.flags if flag.startswith("-")}
        before = named.get(words[-1])
        if before is not None and "action" not in before.kwargs:
            found = _values(before, values)
        elif word.startswith("-"):
            found = [*named]
        else:
            found = [each for option in options if option not in named.values() for each in _values(option, values)]
    return [each for each in dict.fromkeys(found) if each.startswith(word)]


def _values(option: Option, values: Values) -> Sequence[str]:
    return option.kwargs.get("choices") or (values(option.complete) if option.complete else [])
