"""Detect the program that shows a notebook (JupyterLab, VS Code, ...), and whether it runs without a user."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.values import nearest
from kernel_backend.spec.options import VIEWS

FrontEnd = Literal["jupyter", "vscode", "colab"]  # `jupyter` is any frontend that can run JupyterLab's extensions
STATIC = Path(__file__).parent / "views" / "static"


def this_shell() -> Any:
    """Return the running IPython shell; None in a plain Python program."""
    from IPython.core.getipython import get_ipython

    return get_ipython()


def headless(shell: Any) -> bool:
    """Return whether no user sees the notebook run (nbconvert, papermill, `jupyter execute`).

    In such a notebook, a cell that submits an experiment waits until it has ended. Programs without a user declare that
    they accept no input requests; DAYLIGHT_HEADLESS=1 or 0 overrides that.
    """
    if given := os.environ.get("DAYLIGHT_HEADLESS"):
        return given not in ("0", "false", "no")
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return False
    try:
        return not kernel.get_parent("shell")["content"]["allow_stdin"]
    except (KeyError, TypeError, AttributeError):
        return False


def notebook_path(shell: Any) -> str | None:
    """Return the path of the notebook file if the frontend reports it, else None."""
    path = shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME")
    return str(path) if path else None


def front_end(shell: Any, environment: Mapping[str, str] = os.environ) -> FrontEnd:
    """Return which frontend shows the notebook, `jupyter`, `vscode` or `colab`."""
    if "google.colab" in sys.modules or "COLAB_RELEASE_TAG" in environment:
        return "colab"
    if "__vsc_ipynb_file__" in getattr(shell, "user_ns", {}):
        return "vscode"
    # A Jupyter server started in VS Code's terminal inherits its variables, but names each session.
    return "vscode" if "VSCODE_PID" in environment and "JPY_SESSION_NAME" not in environment else "jupyter"


def wants_widget(asked: str | None, shell: Any) -> bool:
    """Return whether to show an experiment as a widget instead of a card.

    The option `asked` decides, else the variable DAYLIGHT_VIEW, else whether the frontend needs a widget. A notebook
    that runs without a user always gets the card, as a widget would show nothing. Raises InvalidRequest for an invalid
    option.
    """
    name = "view" if asked else "DAYLIGHT_VIEW"
    view = asked or os.environ.get("DAYLIGHT_VIEW") or "auto"
    if view not in VIEWS:
        raise InvalidRequest(f"{name}={view!r}: must be auto, card or widget{nearest(view, VIEWS)}")
    if getattr(shell, "kernel", None) is None or headless(shell):
        return False
    return view == "widget" or (view == "auto" and front_end(shell) != "jupyter")


def lacks_for_widget() -> str | None:
    """Return what is missing in this kernel to show widgets, with a remedy; None if widgets can be shown."""
    if importlib.util.find_spec("anywidget") is None:
        return "the live view here needs anywidget: pip install anywidget"
    if not all((STATIC / name).is_file() for name in ("widget.js", "widget.css")):
        return "the live view here has not been built: run make setup in Daylight's sources"
    return None


class Hearing:
    """Clock that measures for how long no message has come from the page that shows a widget, to detect a closed page.

    A running cell delays messages, so the time while a cell runs is not counted.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._busy, self._last = True, time.monotonic()  # created while a cell runs
        shell.events.register("pre_run_cell", self._cell_begins)
        shell.events.register("post_run_cell", self._cell_ended)

    def heard(self) -> None:
        """Record that a message from the page has arrived."""
        self._last = time.monotonic()

    def silence(self) -> float:
        """Return the seconds since the last message from the page; 0 while a cell runs."""
        return 0.0 if self._busy else time.monotonic() - self._last

    def close(self) -> None:
        """Unregister the callbacks by which the clock learns that a cell runs."""
        self._shell.events.unregister("pre_run_cell", self._cell_begins)
        self._shell.events.unregister("post_run_cell", self._cell_ended)

    def _cell_begins(self, info: Any) -> None:
        self._busy = True

    def _cell_ended(self, result: Any) -> None:
        self._busy, self._last = False, time.monotonic()
