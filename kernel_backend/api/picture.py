"""Draw an experiment's curves as a PNG, for saved notebooks, in which no live view can run.

Importing this module is slow (matplotlib), so import it only to draw. Figures are created without pyplot, so that
threads may draw concurrently without global state.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnchoredOffsetbox, HPacker, TextArea
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from kernel_backend.model.experiment import Config
from kernel_backend.model.views.curves import Curve, trainings
from kernel_backend.model.views.overview import Overview
from kernel_backend.text import kind_text, place_text, state_word

INCHES, DPI = (9.0, 3.0), 200  # 900 x 300 pixels at twice the resolution
_PANELS = 3  # metrics next to the loss
_NAME, _METRICS = 48, (60, 26, 18, 10)  # characters of a name, and of a metric's name by number of panels
_PLAIN = FuncFormatter(lambda value, _: f"{value:.6g}")

warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")  # names may be in any script


class Palette(NamedTuple):
    """Colours of one theme."""

    paper: str
    ink: str
    quiet: str
    grid: str
    training: str
    validation: str
    warning: str
    states: dict[str, str]


LIGHT = Palette(
    paper="#ffffff",
    ink="#1f2328",
    quiet="#6e7781",
    grid="#e9ebee",
    training="#2f6fde",
    validation="#e07b24",
    warning="#d1242f",
    states={"running": "#2f6fde", "completed": "#1a7f37", "failed": "#d1242f"},
)
DARK = Palette(
    paper="#111111",
    ink="#e8e8e8",
    quiet="#9a9a9a",
    grid="#2a2a2a",
    training="#6ea8fe",
    validation="#ffab5e",
    warning="#ff7b72",
    states={"running": "#6ea8fe", "completed": "#57c26e", "failed": "#ff7b72"},
)


def draw(overview: Overview, curves: Sequence[Curve], dark: bool = False) -> bytes:
    """Return a PNG of 1800 x 600 pixels with an experiment's learning curves, on a dark background if `dark`.

    Losses are on the left, up to three validation metrics on the right.
    """
    palette = DARK if dark else LIGHT
    figure = Figure(figsize=INCHES, dpi=DPI, facecolor=palette.paper)
    FigureCanvasAgg(figure)
    title(figure, overview, palette, _epochs(overview))
    config = overview.experiment.config
    if curves and config.uses_model:
        _curves(figure, [each.model_copy(update={"epoch": each.step}) for each in curves], palette, config)
        for axes in figure.axes:
            axes.set_xlabel("row", color=palette.quiet, fontsize=7.5, labelpad=2)
    elif curves:
        _curves(figure, curves, palette, config)
    else:
        _nothing_yet(figure, overview, palette)
    file = io.BytesIO()
    figure.savefig(file, format="png", facecolor=palette.paper)
    return file.getvalue()


def _epochs(overview: Overview) -> str:
    if overview.experiment.config.uses_model and overview.front is not None:
        return place_text(overview.front, overview.experiment.config)
    epoch = max((trial.epoch for trial in overview.trials), default=0.0)
    epochs = overview.experiment.config.known_epochs
    return f"epoch {round(epoch, 1):g}" + ("" if epochs is None else f"/{epochs}")


def title(figure: Figure, overview: Overview, palette: Palette, progress: str) -> None:
    """Draw a title in the upper left corner: the experiment's number, name and state, and the text `progress`."""
    experiment, state = overview.experiment, overview.state
    words = [
        (f"#{experiment.number} {_shown(experiment.name, _NAME)}", palette.ink, "bold"),
        ("·", palette.quiet, "normal"),
        (state_word(overview), palette.states.get(state, palette.quiet), "bold"),
        ("·", palette.quiet, "normal"),
        (progress, palette.quiet, "normal"),
    ]
    line(figure, words, (0.025, 0.965), size=10.5)


def line(host: Figure | Axes, words: Sequence[tuple[str, str, str]], place: tuple[float, float], size: float) -> None:
    """Draw words next to each other, each given as (text, colour, weight).

    `place` is the upper left corner of the first word, as fractions of the host's width and height; `size` is the font
    size.
    """
    texts = [
        TextArea(text, textprops={"color": color, "fontweight": weight, "fontsize": size, "parse_math": False})
        for text, color, weight in words
    ]
    transform = host.transFigure if isinstance(host, Figure) else host.transAxes
    host.add_artist(
        AnchoredOffsetbox(
            "upper left",
            child=HPacker(children=[*texts], sep=size * 0.55, pad=0),
            pad=0,
            borderpad=0,
            frameon=False,
            bbox_to_anchor=place,
            bbox_transform=transform,
        )
    )


def _shown(text: str, most: int) -> str:
    """Return the text on one line, cut to at most `most` characters, of which the last is then an ellipsis."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= most else line[: most - 1] + "…"


def _nothing_yet(figure: Figure, overview: Overview, palette: Palette) -> None:
    text = "no reports" if overview.ended else "no reports yet"
    figure.text(0.5, 0.5, text, color=palette.quiet, fontsize=12, ha="center", va="center")
    if overview.wait is not None:
        why = _shown(overview.wait.reason, 100)
        figure.text(0.5, 0.39, why, color=palette.quiet, fontsize=8.5, ha="center", va="center", parse_math=False)


def _curves(figure: Figure, curves: Sequence[Curve], palette: Palette, config: Config) -> None:
    losses = _losses(curves)
    metrics = [curve for curve in curves if curve.kind == "validation" and curve.metric not in losses]
    shown = metrics[: 1 + _PANELS - len(losses)]
    wide = (1.0 + 0.7 * len(shown)) / len(losses)
    panels = len(losses) + len(shown)
    ratios = [max(wide, 1.0)] * len(losses) + [1.0] * len(shown)
    grid = figure.add_gridspec(1, panels, width_ratios=ratios, wspace=0.26)
    grid.update(left=0.062, right=0.978, top=0.76, bottom=0.135)
    most = max(epoch for curve in curves for epoch in curve.epoch)
    colors = {"training": palette.training, "validation": palette.validation}
    for place, loss in enumerate(losses):
        both = sorted((curve for curve in curves if curve.metric == loss), key=lambda curve: curve.kind)
        lines = [(kind_text(curve.kind, config), curve, colors[curve.kind]) for curve in both]
        _panel(figure.add_subplot(grid[place]), _shown(loss, _METRICS[panels - 1]), lines, most, palette)
    for place, curve in enumerate(shown, len(losses)):
        label = _shown(curve.metric, _METRICS[panels - 1])
        _panel(figure.add_subplot(grid[place]), label, [("", curve, palette.validation)], most, palette)
    if len(metrics) > len(shown):
        more = f"+ {len(metrics) - len(shown)} more"
        figure.text(0.978, 0.955, more, color=palette.quiet, fontsize=7.5, ha="right", va="top")


def _losses(curves: Sequence[Curve]) -> list[str]:
    """Return the names of the metrics to draw in the left panel: `loss`; if there is none, names that end with `_loss`.

    If there are none of these either, the first metric is drawn.
    """
    names = list(dict.fromkeys(curve.metric for curve in curves))
    if "loss" in names:
        return ["loss"]
    return [name for name in names if name.endswith("_loss")][: 1 + _PANELS] or names[:1]


def _panel(axes: Axes, name: str, curves: Sequence[tuple[str, Curve, str]], most: float, palette: Palette) -> None:
    head = [(name, palette.ink, "bold")]
    for label, curve, color in curves:
        _plot(axes, curve, color, palette)
        last = "" if curve.last is None else f"{curve.last:.4g}"
        head.append((f"{label} {last}".strip(), color, "normal"))
    if any(curve.broken for _, curve, _ in curves):
        head.append(("× not finite", palette.warning, "normal"))
    line(axes, head, (0.0, 1.13), size=8.5)
    values = [value for _, curve, _ in curves for value in (*curve.low, *curve.high) if value is not None]
    dress(axes, values, palette)
    axes.set_xlim(0, most * 1.02 or 1.0)


def _plot(axes: Axes, curve: Curve, color: str, palette: Palette) -> None:
    points = list(zip(curve.epoch, curve.mean, curve.low, curve.high, strict=True))
    few = sum(mean is not None for mean in curve.mean) <= 30
    for start, stop in pairwise([*trainings(curve.epoch), len(points)]):
        known = [point for point in points[start:stop] if point[1] is not None]
        epochs, means, lows, highs = zip(*known, strict=True) if known else ((), (), (), ())
        if lows != highs:
            axes.fill_between(epochs, lows, highs, color=color, alpha=0.18, linewidth=0)
        style, marker = "--" if start else "-", "o" if few else None
        axes.plot(epochs, means, style, color=color, linewidth=1.5, marker=marker, markersize=3, clip_on=False)
    broken = [curve.epoch[place] for place in curve.broken]
    foot = [0.03] * len(broken)  # marks the position at the bottom
    axes.plot(broken, foot, "x", color=palette.warning, markersize=4, transform=axes.get_xaxis_transform())


def dress(axes: Axes, values: Sequence[float], palette: Palette) -> None:
    """Draw a light grid and unobtrusive tick labels in a panel whose curves have these y values."""
    axes.set_facecolor(palette.paper)
    axes.grid(color=palette.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(palette.grid)
    axes.tick_params(colors=palette.quiet, labelsize=7, length=0, pad=4, which="both")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(_PLAIN)
    axes.set_xlabel("epoch", color=palette.quiet, fontsize=7.5, labelpad=2)
    if not values:
        axes.yaxis.set_major_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(_PLAIN)
