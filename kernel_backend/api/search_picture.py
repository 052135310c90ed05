"""Draw a search as a PNG: the best value over time, and the rungs.

Importing this module is slow, as it imports matplotlib; import it only to draw.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from kernel_backend.api.picture import DARK, DPI, INCHES, LIGHT, Palette, dress, line, title
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import BracketStatus, SearchStatus
from kernel_backend.text import counted, duration, number, trials_text

_WIDE = 10.0  # ratio of largest to smallest value beyond which the axis is logarithmic
_SPREAD = 0.3  # fraction of a rung's width


def draw_search(overview: Overview, status: SearchStatus, dark: bool = False) -> bytes:
    """Return a PNG of 1800 x 600 pixels: on the left the best value over time, on the right the rungs of a bracket.

    A rung is a length of training at which trials are compared; a bracket is a sequence of rungs. If there are several
    brackets, the one with the most results at its first rung is drawn.
    """
    palette = DARK if dark else LIGHT
    figure = Figure(figsize=INCHES, dpi=DPI, facecolor=palette.paper)
    FigureCanvasAgg(figure)
    title(figure, overview, palette, trials_text(overview))
    ladder = max(status.brackets, key=lambda each: each.rungs[0].results, default=None)
    grid = figure.add_gridspec(1, 2 if ladder else 1, wspace=0.2)
    grid.update(left=0.062, right=0.978, top=0.76, bottom=0.135)
    _incumbent(figure.add_subplot(grid[0]), status, palette)
    if ladder is not None:
        _ladder(figure.add_subplot(grid[1]), status, ladder, palette)
    file = io.BytesIO()
    figure.savefig(file, format="png", facecolor=palette.paper)
    return file.getvalue()


def _incumbent(axes: Axes, status: SearchStatus, palette: Palette) -> None:
    steps, metric, best = status.incumbent, status.metric.name, status.best
    last = f"{number(best.best)} ({status.number}.{best.trial})" if best and best.best is not None else "no result yet"
    line(axes, [(f"best {metric} so far", palette.ink, "bold"), (last, palette.training, "normal")], (0.0, 1.13), 8.5)
    values = [step.value for step in steps]
    dress(axes, values, palette)
    _scale(axes, values, status.metric.mode)
    end = max(status.elapsed, 1.0)
    times = [step.at for step in steps]
    if steps:  # the newest best value extends to now
        axes.step([*times, end], [*values, values[-1]], where="post", color=palette.training, linewidth=1.5)
    axes.plot(times, values, "o", color=palette.training, markersize=2.6)
    axes.set_xlim(0, end * 1.01)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value) if value else "0"))
    axes.set_xlabel("since the submission", color=palette.quiet, fontsize=7.5, labelpad=2)


def _ladder(axes: Axes, status: SearchStatus, bracket: BracketStatus, palette: Palette) -> None:
    line(axes, [("rungs", palette.ink, "bold"), (_eta(status), palette.quiet, "normal")], (0.0, 1.13), 8.5)
    values = [value for rung in bracket.rungs for _, value in rung.entries]
    dress(axes, values, palette)
    _scale(axes, values, status.metric.mode)
    highest = {trial: place for place, rung in enumerate(bracket.rungs) for trial, _ in rung.entries}
    for place, rung in enumerate(bracket.rungs):
        for went_on, colour in ((False, palette.quiet), (True, palette.training)):
            kept = [(trial, value) for trial, value in rung.entries if (highest[trial] > place) is went_on]
            across = [place + _SPREAD * (2 * (trial * 0.618034 % 1) - 1) for trial, _ in kept]
            axes.plot(across, [value for _, value in kept], "o", color=colour, markersize=2.6, alpha=0.8)
        if rung.cut is not None:
            axes.hlines(rung.cut, place - 0.4, place + 0.4, color=palette.quiet, linewidth=0.8, linestyles="dashed")
    axes.set_xlim(-0.5, len(bracket.rungs) - 0.5)
    axes.xaxis.set_major_locator(FixedLocator(range(len(bracket.rungs))))
    names = [f"{status.unit} {rung.unit}\n{counted(rung.results, 'result')}" for rung in bracket.rungs]
    axes.set_xticklabels(names)
    axes.set_xlabel("")


def _eta(status: SearchStatus) -> str:
    return f"one of {status.search.eta} goes on from each"


def _scale(axes: Axes, values: Sequence[float], mode: str) -> None:
    """Set a logarithmic y axis for a minimised metric (`mode` "min") if all values are positive and far apart."""
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    if mode == "min" and positive and len(positive) == len(values) and max(positive) > _WIDE * min(positive):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
