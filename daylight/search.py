"""Write search methods, and simulate searches on recorded learning curves.

The records that describe a method (`SearchMethod`, `MethodOption`) are imported without numpy, since notebook kernels
need no others. Everything else is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.methods import MethodOption, SearchMethod
from kernel_backend.model.search.records import Complete, Continue, Create, Pause, Prune, Resume, Settings
from kernel_backend.model.search.space import Parameter, Space

if TYPE_CHECKING:
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
    "Choices",
    "Complete",
    "Continue",
    "Create",
    "Encoder",
    "MethodOption",
    "Observations",
    "Parameter",
    "Pause",
    "Plan",
    "Problem",
    "Progress",
    "Prune",
    "RandomSampler",
    "Range",
    "Resume",
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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("kernel_backend.search"), name)
