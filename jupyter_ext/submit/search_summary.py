"""Summarise a search before it is submitted: its parameters, bounds and forecast training time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel_backend.model.experiment import Config
from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Range
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.model.values import written
from kernel_backend.search.forecast import forecast
from kernel_backend.search.make import plan
from kernel_backend.search.settings import settings_of
from kernel_backend.spec.config_text import duration_word
from kernel_backend.text import counted

MOST_FORETOLD = 2000  # most search decisions to simulate, over all trials: a second or two
GANGS = (1, 2, 8)  # concurrent trials for which the duration is forecast


def parameter_text(parameter: Parameter) -> str:
    """Return a description of a parameter's domain, such as `momentum: 0 to 0.9, where opt is sgd`."""
    each = f" of each of the {parameter.each}" if parameter.each else ""
    when = f", where {parameter.when.name} is {_one_of(parameter.when.values)}" if parameter.when else ""
    domain = parameter.domain
    text = _range_text(domain) if isinstance(domain, Range) else _one_of(domain.values)
    return f"{parameter.name}{each}: {text}{when}"


def _range_text(domain: Range) -> str:
    low, _, high = str(domain).partition(":")[0].partition("..")
    kind = "powers of two from " if domain.scale == "log2" else "whole numbers from " if domain.whole else ""
    return f"{kind}{low} to {high}{' on a logarithmic scale' if domain.scale == 'log' else ''}"


def _one_of(values: Sequence[Value]) -> str:
    *others, last = map(written, values)
    return f"{', '.join(others)} or {last}" if others else last


def trials_text(config: Config, space: Space) -> str:
    """Return the method and the number of trials of a search, such as `random: 16 trials`."""
    trials = plan(settings_of(config), space).trials
    return f"{(config.search or Search()).method}: {'trials' if trials is None else counted(trials, 'trial')}"


def bounds_text(config: Config, space: Space) -> str:
    """Return a text with the number and length of a search's trials, and the bounds of its cost.

    For example `asha: 64 trials of 1 to 16 epochs on 2 slots, that is 128 to 2,048 epochs of a slot`: the least and the
    most that all trials together may train.
    """
    search = config.search or Search()
    most, unit = (config.steps, "step") if config.steps else (config.epochs, "epoch")
    trials, least, _ = plan(settings_of(config), space)
    of = f"{_from_to(least, most)} {unit}{'' if most == 1 else 's'} on {counted(config.slots, 'slot')}"
    ends = list(_ends(search))
    if trials is None:
        return f"{search.method}: trials of {of}{', until ' + ' or '.join(ends) if ends else ''}"
    whole = _from_to(trials * least * config.slots, trials * most * config.slots)
    until = f", or until {' or '.join(ends)}" if ends else ""
    return f"{search.method}: {counted(trials, 'trial')} of {of}, that is {whole} {unit}s of a slot{until}"


def forecast_text(config: Config, space: Space) -> str:
    """Return a text with the forecast cost and duration of a search, relative to one full training; "" if unknown.

    For example `about 35 epochs in all (18 % of 12 whole trainings); as long as 2.2 whole trainings one by one, 1.5 by
    2 at once`.
    """
    settings, unit = settings_of(config), "step" if config.steps else "epoch"
    if plan(settings, space).reports > MOST_FORETOLD:
        return ""  # a simulation would take longer than a user waits
    found = [each for gangs in GANGS if (each := forecast(settings, space, gangs)) is not None]
    if not found:
        return ""
    first = found[0]
    share = 100 * first.units / (first.trials * settings.units)
    alone, *others = (f"{each.length / settings.units:.2g}" for each in found)
    together = "".join(f", {each} by {gangs} at once" for gangs, each in zip(GANGS[1:], others, strict=True))
    return (
        f"about {counted(round(first.units), unit)} in all ({share:.0f} % of "
        f"{counted(round(first.trials), 'whole training')}); as long as {alone} whole trainings one by one{together}"
    )


def _ends(search: Search) -> Iterator[str]:
    if search.budget is not None:
        yield f"{duration_word(search.budget)} of slot time are used up"
    if search.max_time is not None:
        yield f"{duration_word(search.max_time)} have passed"


def _from_to(least: int, most: int) -> str:
    return f"{least:,} to {most:,}" if least < most else f"{most:,}"
