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
    """Save all open figures as artifacts and close them; `pyplot.show` calls this, and its arguments are ignored."""
    plots.show()
