"""Keep the plots that the user's code shows as artifacts, as a notebook would display them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_backend.artifacts.run import Writer
from kernel_backend.runner import opened_files

MOST = 200  # plots of an attempt that are kept
_DRAWS = re.compile(r"\b(?:matplotlib|pylab|seaborn)\b|\.plot\b")
_BACKEND = "module://kernel_backend.runner.plot_backend"


class Plots:
    """Keeper of the figures that matplotlib shows: each is saved as an artifact, and closed as in a notebook.

    A figure that was never shown is saved at the end of the training, as a notebook displays it at the end of the cell.
    The n-th figure after step 200 is called `plot n 200`, so that the user interface can show the n-th figures of all
    steps as one, with a slider over the steps.
    """

    def __init__(self, keep: Writer | None, folder: Path, step: Callable[[], int], warn: Callable[[str], None]) -> None:
        """Create a keeper; `keep` saves a file as an artifact (None: nothing is kept on this rank).

        `folder` is for temporary files, `step` returns the current step, and `warn` is called with what went wrong.
        """
        self._keep, self._folder, self._step, self._warn = keep, folder, step, warn
        self._kept, self._at, self._place = 0, -1, 0

    def show(self) -> None:
        """Save all open figures of pyplot as artifacts, and close them."""
        from matplotlib import pyplot

        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            if self._keep is not None and (figure.axes or figure.texts):
                self._save(self._keep, figure)
            pyplot.close(figure)

    def _save(self, keep: Writer, figure: Any) -> None:
        if self._kept >= MOST:
            if self._kept == MOST:
                self._kept += 1
                self._warn(f"only the first {MOST} plots of this attempt are kept")
            return
        step = self._step()
        self._at, self._place = step, (self._place + 1 if step == self._at else 1)
        name = f"plot {self._place} {step}"
        path = self._folder / f"{name}.png"
        try:
            with opened_files.unheard():  # fonts are no data
                figure.savefig(path, bbox_inches="tight")
            keep(name, path)
        except Exception as error:  # such as an invalid formula: the training goes on without this plot
            self._warn(f"{name} was not kept: {type(error).__name__}: {error}")
        else:
            self._kept += 1
        finally:
            path.unlink(missing_ok=True)


_plots: Plots | None = None


def show() -> None:
    """Save all open figures of pyplot as artifacts and close them, if `begin` was called."""
    if _plots is not None:
        _plots.show()


def draws(code: Path) -> bool:
    """Return True if code in the folder seems to draw with matplotlib.

    Otherwise matplotlib, which is slow to import, is not imported for it.
    """
    return any(_DRAWS.search(path.read_text(errors="replace")) for path in code.rglob("*.py"))


def begin(plots: Plots) -> None:
    """Let `plots` keep the figures that matplotlib shows from now on, unless the user chooses another backend."""
    global _plots
    import matplotlib

    _plots = plots
    matplotlib.use(_BACKEND)


def finish() -> None:
    """Keep the figures that were never shown, if the user's code has made any by pyplot."""
    global _plots
    if _plots is not None and "matplotlib.pyplot" in sys.modules:
        _plots.show()
    _plots = None
