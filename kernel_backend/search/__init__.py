"""Decide which trials of a search train, for how long and with what hyperparameters, by pure state machines.

`make` returns a searcher for `Settings` and a `Space`; `simulate` runs it on recorded learning curves.
"""

from kernel_backend.model.search.methods import MethodOption, SearchMethod
from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.space import Space
from kernel_backend.search.asha import sampled
from kernel_backend.search.base import Plan, Searcher
from kernel_backend.search.base_searcher import BaseSearcher, Progress
from kernel_backend.search.encoding import Encoder
from kernel_backend.search.make import make
from kernel_backend.search.observations import Observations
from kernel_backend.search.samplers.base import RandomSampler, Sampler, SobolSampler, stream
from kernel_backend.search.simulation.problems import Problem, TableProblem
from kernel_backend.search.simulation.simulate import simulate
from kernel_backend.search.simulation.trace import Trace

__all__ = [
    "BaseSearcher",
    "Encoder",
    "MethodOption",
    "Observations",
    "Plan",
    "Problem",
    "Progress",
    "RandomSampler",
    "Sampler",
    "SearchMethod",
    "Searcher",
    "Settings",
    "SobolSampler",
    "Space",
    "TableProblem",
    "Trace",
    "make",
    "sampled",
    "simulate",
    "stream",
]
