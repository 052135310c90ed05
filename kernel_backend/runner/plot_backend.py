"""Backend of matplotlib that draws no windows: `pyplot.show` keeps the figures as artifacts.

matplotlib loads this module by its name, and looks for `FigureCanvas`, `FigureManager` and `show` in it.
"""

from __future__ import annotations

from typing import Any

from matplotlib.backend_bases import FigureManagerBase as FigureManager
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

from kernel_backend.runner import plots

__all__ = ["FigureCanvas", "FigureManager", "show"]


def show(*args: Any, **kwargs: Any) -> None:
    """Keep and close all open figures; the arguments of `pyplot.show` have no meaning here."""
    plots.show()
