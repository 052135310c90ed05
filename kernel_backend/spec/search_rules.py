"""Check the settings of a search: which options its method supports, and what the method requires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import parse_reference
from kernel_backend.model.search.domains import Range
from kernel_backend.model.search.methods import BUILT_IN, COMMON, SearchMethod
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.registry import method_of
from kernel_backend.model.search.space import Space
from kernel_backend.model.values import nearest, written

MOST_ROUNDS = 10_000  # of population-based training, which keeps a ranking for each


def check_search(config: Config, space: Space) -> None:
    """Raise InvalidRequest with all problems of a search of this space with this configuration."""
    _raise([*_problems(config, space), *_units(config)])


def check_line(config: Config, space: Space) -> None:
    """Raise InvalidRequest with all problems of the search options on a command line.

    The length of the trials is checked only if the line sets it, as otherwise the training definition may set one.
    """
    length = _units(config) if config.model_fields_set & {"epochs", "steps"} else ()
    _raise([*_problems(config, space), *length])


def check_length(config: Config) -> None:
    """Raise InvalidRequest if the trials of a search are too short for its method."""
    _raise(list(_units(config)))


def _raise(wrong: Sequence[str]) -> None:
    if wrong:
        raise InvalidRequest("\n".join(wrong))


def _problems(config: Config, space: Space) -> Iterator[str]:
    search = config.search or Search()
    method = method_of(search.method)
    if method.space == "none":
        yield from _none(space)
    elif not space.parameters and method.space != "any":
        yield f"--search {method.name} has nothing to search: write a range or a list, such as lr=1e-4..1e-1:log"
    elif config.max_time is not None:
        yield "max_time of a search is search.max_time: config.max_time is how long a plain training holds its slots"
    yield from _strangers(search, method)
    yield from _options(search, method)
    yield from _warm(search, method)
    if method.space == "counted":
        yield from uncounted(space)


def _none(space: Space) -> Iterator[str]:
    for parameter in space.parameters:
        yield f"'{parameter}' is searched only with --search: add --search asha, or give one value"


def _strangers(search: Search, method: SearchMethod) -> Iterator[str]:
    for name in (*dict.fromkeys(field for each in BUILT_IN for field in each.uses), *COMMON):
        if getattr(search, name) != Search.model_fields[name].default and not method.may_use(name):
            flag = "--" + name.replace("_", "-")
            others = " or ".join(each.name for each in BUILT_IN if name in each.uses) or "any other"
            yield f"{flag} means nothing to --search {method.name}: leave it out, or search with {others}"


def _options(search: Search, method: SearchMethod) -> Iterator[str]:
    known = {option.name: option for option in method.options}
    for name, value in search.options.items():
        if name not in known:
            there = f"; there are: {' '.join(known)}" if known else ": it has none"
            yield f"--search-option {name}: --search {method.name} has no such option{nearest(name, known)}{there}"
        elif reason := known[name].refuse(value):
            yield f"--search-option {name}={written(value)}: {reason}"


def _warm(search: Search, method: SearchMethod) -> Iterator[str]:
    """Yield a problem if `--warm` names results although the method's proposals do not depend on results."""
    results = [each for each in search.warm if parse_reference(each).trial is None]
    if results and method.space != "none" and not search.learns:
        other = "add --sampler kde" if "sampler" in method.uses else "search with asha, or with tpe"
        yield (
            f"--warm {results[0]} means nothing to --search {method.name}: its new trials come from no results; "
            f"leave it out, or {other}"
        )


def _units(config: Config) -> Iterator[str]:
    search = config.search or Search()
    method = method_of(search.method)
    units, kind = (config.steps, "--steps") if config.steps else (config.epochs, "--epochs")
    if method.judged != "end" and units < 2:
        reason = f"{kind} {units} has nothing before the end to judge a trial by"
        yield f"--search {method.name} needs 2 or more: {reason}; write --epochs 10"
    elif search.first_rung is not None and search.first_rung >= units:
        yield f"--first-rung {search.first_rung}: must be less than {kind} {units}"
    if search.interval is not None and search.interval >= units:
        yield f"--interval {search.interval}: must be less than {kind} {units}"
    elif search.interval is not None and units / search.interval > MOST_ROUNDS:
        least = -(-units // MOST_ROUNDS)
        yield f"--interval {search.interval}: must be at least {least}, for {MOST_ROUNDS:,} rounds of {kind} {units}"


def uncounted(space: Space) -> Iterator[str]:
    """Yield a message for each range of real numbers that lacks the number of values for a grid."""
    for parameter in space.parameters:
        domain = parameter.domain
        if isinstance(domain, Range) and not (domain.whole or domain.scale == "log2" or domain.count is not None):
            counted = parameter.model_copy(update={"domain": domain.model_copy(update={"count": 5})})
            yield f"'{parameter}': a grid needs to know how many values of it, such as {counted}"
