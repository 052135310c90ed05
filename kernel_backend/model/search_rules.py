"""Which searches can be: what belongs to which method, and what a method asks of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import parse_reference
from kernel_backend.model.search import Method, Search
from kernel_backend.model.space import Range, Space

_RUNGS = ("asha", "hyperband")  # methods that decide at rungs
_STAGED = (*_RUNGS, "pbt")  # those that decide anything before the end of a trial
MOST_ROUNDS = 10_000  # of population-based training: a ranking is kept for each
_BELONGS: dict[str, tuple[str, ...]] = {
    "sampler": _STAGED,
    "stopping": _RUNGS,
    "eta": _RUNGS,
    "first_rung": _RUNGS,
    "brackets": ("asha",),
    "population": ("pbt",),
    "interval": ("pbt",),
    "source": ("custom",),
    **dict.fromkeys(
        ("trials", "parallel", "budget", "max_time", "warm"),
        tuple(method for method in get_args(Method) if method != "single"),
    ),
}


def check_search(config: Config, space: Space) -> None:
    """Raise InvalidRequest that tells all that stands between this configuration and a search of this space."""
    wrong = list(_problems(config, space))
    if wrong:
        raise InvalidRequest("\n".join(wrong))


def _problems(config: Config, space: Space) -> Iterator[str]:
    search = config.search or Search()
    if search.method == "single":
        yield from _none(search, space)
    elif not space.parameters and search.method != "custom":
        yield f"--search {search.method} has nothing to search: write a range or a list, such as lr=1e-4..1e-1:log"
    elif config.max_time is not None:
        yield "max_time of a search is search.max_time: config.max_time is how long a plain training holds its slots"
    yield from _strangers(search)
    yield from _warm(search)
    yield from _units(search, config)
    if search.method == "grid":
        yield from uncounted(space)


def _none(search: Search, space: Space) -> Iterator[str]:
    for parameter in space.parameters:
        yield f"'{parameter}' is searched only with --search: add --search asha, or give one value"


def _strangers(search: Search) -> Iterator[str]:
    for name, methods in _BELONGS.items():
        value = getattr(search, name)
        if value != Search.model_fields[name].default and search.method not in methods:
            flag = "--" + name.replace("_", "-")
            others = "any other" if len(methods) > len(_STAGED) else " or ".join(methods)
            yield f"{flag} means nothing to --search {search.method}: leave it out, or search with {others}"


def _warm(search: Search) -> Iterator[str]:
    """Results are for those who look at them; weights are for all."""
    results = [each for each in search.warm if parse_reference(each).trial is None]
    if results and search.method != "single" and not search.learns:
        other = "add --sampler kde" if search.method in _STAGED else "search with asha, or with tpe"
        yield (
            f"--warm {results[0]} means nothing to --search {search.method}: its new trials come from no results; "
            f"leave it out, or {other}"
        )


def _units(search: Search, config: Config) -> Iterator[str]:
    units, kind = (config.steps, "--steps") if config.steps else (config.epochs, "--epochs")
    if search.method in _STAGED and units < 2:
        reason = f"{kind} {units} has nothing before the end to judge a trial by"
        yield f"--search {search.method} needs 2 or more: {reason}; write --epochs 10"
    elif search.first_rung is not None and search.first_rung >= units:
        yield f"--first-rung {search.first_rung}: must be less than {kind} {units}"
    if search.interval is not None and search.interval >= units:
        yield f"--interval {search.interval}: must be less than {kind} {units}"
    elif search.interval is not None and units / search.interval > MOST_ROUNDS:
        least = -(-units // MOST_ROUNDS)
        yield f"--interval {search.interval}: must be at least {least}, for {MOST_ROUNDS:,} rounds of {kind} {units}"


def uncounted(space: Space) -> Iterator[str]:
    """What to say of each range whose values a grid cannot know."""
    for parameter in space.parameters:
        domain = parameter.domain
        if isinstance(domain, Range) and not (domain.whole or domain.scale == "log2" or domain.count is not None):
            counted = parameter.model_copy(update={"domain": domain.model_copy(update={"count": 5})})
            yield f"'{parameter}': a grid needs to know how many values of it, such as {counted}"
