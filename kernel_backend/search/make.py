"""From what was asked for to a searcher."""

from __future__ import annotations

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.search import Settings
from kernel_backend.model.space import Space
from kernel_backend.search import grid
from kernel_backend.search.asha import Asha
from kernel_backend.search.base import Searcher
from kernel_backend.search.brackets import Bracket, graded, hyperband, with_late_bloomers
from kernel_backend.search.custom import Asker, Custom
from kernel_backend.search.encoding import Encoder
from kernel_backend.search.kde import KdeSampler
from kernel_backend.search.observations import Observations
from kernel_backend.search.optuna import CmaesSampler, GpSampler, TpeSampler, check_installed
from kernel_backend.search.pbt import Pbt
from kernel_backend.search.rungs import rung_units
from kernel_backend.search.samplers import ListSampler, RandomSampler, Sampler, SobolSampler


def make(settings: Settings, space: Space, asker: Asker | None = None) -> Searcher:
    """The searcher of these settings, at its beginning; the same settings make the same one.

    `asker` is the class of the cell, for the method custom. Raises InvalidRequest where the method cannot search this
    space, or a library of its sampler is missing.
    """
    if settings.method == "custom":
        if asker is None:
            raise InvalidRequest(f"a custom search needs the process of its class {settings.source}")
        return Custom(settings, space, asker)
    brackets = brackets_of(settings)
    seen = Observations(Encoder(space), settings.mode, [rung.unit for bracket in brackets for rung in bracket.rungs])
    if settings.method == "grid":
        points = grid.points(space)
        return Asha(settings, brackets, ListSampler(points), seen, settings.limit, asks=len(points))
    sampler = sampler_of(settings, len(seen.encoder.dimensions))
    if settings.method == "pbt":
        return Pbt(settings, space, sampler, seen)
    return Asha(settings, brackets, sampler, seen, limit_of(settings, brackets))


def limit_of(settings: Settings, brackets: list[Bracket]) -> int | None:
    """How many trials there may be; of Hyperband, where nothing else is said, all of its brackets once."""
    if settings.limit is None and settings.method == "hyperband" and not settings.ends_by_use:
        return round(sum(bracket.weight for bracket in brackets))
    return settings.limit


def brackets_of(settings: Settings) -> list[Bracket]:
    """The ladders of a method; of one that trains every trial to its end it has a single rung."""
    if settings.method not in ("asha", "hyperband"):
        return [Bracket([settings.units], 1.0)]
    units = rung_units(settings.units, settings.eta, settings.first_rung)
    if settings.method == "hyperband":
        return hyperband(units, settings.eta)
    if settings.brackets == "aggressive":
        return with_late_bloomers(units, settings.eta)
    return graded(units, settings.eta, settings.brackets)


def sampler_of(settings: Settings, dimensions: int) -> Sampler:
    """What gives new trials their hyperparameters, in a space of so many dimensions."""
    seed, name = settings.seed, settings.samples_by
    check_installed(name)
    match name:
        case "kde":
            return KdeSampler(seed)
        case "sobol":
            return SobolSampler(dimensions, seed)
        case "tpe":
            return TpeSampler(seed)
        case "gp":
            return GpSampler(seed)
        case "cmaes":
            return CmaesSampler(seed)
        case _:
            return RandomSampler(seed)
