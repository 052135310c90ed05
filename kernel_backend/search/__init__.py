"""Which trials train, how far, and with what values: pure state machines that are fed by reports.

`make` builds one of `Settings` and a `Space`; `simulate` runs it against curves that are known.
"""

from kernel_backend.search.base import Searcher
from kernel_backend.search.make import make
from kernel_backend.search.problems import Problem, TableProblem
from kernel_backend.search.simulate import simulate
from kernel_backend.search.trace import Trace

__all__ = ["Problem", "Searcher", "TableProblem", "Trace", "make", "simulate"]
