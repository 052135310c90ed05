"""Choose the sampler that a search's settings name."""

from __future__ import annotations

from kernel_backend.model.search.records import Settings
from kernel_backend.search.samplers.base import RandomSampler, Sampler, SobolSampler
from kernel_backend.search.samplers.kde import KdeSampler
from kernel_backend.search.samplers.optuna import CmaesSampler, GpSampler, TpeSampler, check_installed


def sampler_of(settings: Settings, dimensions: int) -> Sampler:
    """Return the sampler for new trials, in a space of `dimensions` coordinates."""
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
