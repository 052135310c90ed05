"""Who looks at the notebook: a person or a program, and through which front end."""

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

FrontEnd = Literal["jupyter", "vscode", "colab"]  # `jupyter` is every one where JupyterLab's extensions can be
STATIC = Path(__file__).parent / "views" / "static"


def this_shell() -> Any:
    """The running IPython; None in a plain program."""
    from IPython.core.getipython import get_ipython

    return get_ipython()


def headless(shell: Any) -> bool:
    """Whether nobody sits in front of it (nbconvert, papermill, `jupyter execute`), so that cells should wait.

    Such programs say that they cannot be asked for input; DAYLIGHT_HEADLESS=1 or 0 overrides that.
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
    """The notebook's file, as far as the frontend tells."""
    path = shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME")
    return str(path) if path else None


def front_end(shell: Any, environment: Mapping[str, str] = os.environ) -> FrontEnd:
    """Which front end shows the notebook."""
    if "google.colab" in sys.modules or "COLAB_RELEASE_TAG" in environment:
        return "colab"
    if "__vsc_ipynb_file__" in getattr(shell, "user_ns", {}):
        return "vscode"
    # A Jupyter server that was started in VS Code's terminal inherits its variables, and names each session.
    return "vscode" if "VSCODE_PID" in environment and "JPY_SESSION_NAME" not in environment else "jupyter"


def wants_widget(asked: str | None, shell: Any) -> bool:
    """Whether an experiment is shown as a widget: as `asked`, else as DAYLIGHT_VIEW says, else as the front end needs.

    Where nobody sits a widget would show nothing, so there it is always the card. Raises InvalidRequest.
    """
    name = "view" if asked else "DAYLIGHT_VIEW"
    view = asked or os.environ.get("DAYLIGHT_VIEW") or "auto"
    if view not in VIEWS:
        raise InvalidRequest(f"{name}={view!r}: must be auto, card or widget{nearest(view, VIEWS)}")
    if getattr(shell, "kernel", None) is None or headless(shell):
        return False
    return view == "widget" or (view == "auto" and front_end(shell) != "jupyter")


def lacks_for_widget() -> str | None:
    """Why there can be no widget here, and what to do; None where there can."""
    if importlib.util.find_spec("anywidget") is None:
        return "the live view here needs anywidget: pip install anywidget"
    if not all((STATIC / name).is_file() for name in ("widget.js", "widget.css")):
        return "the live view here has not been built: run make setup in Daylight's sources"
    return None


class Hearing:
    """For how long this kernel could have heard its page and has not: what is said while a cell runs waits."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._busy, self._last = True, time.monotonic()  # it is a cell that makes one
        shell.events.register("pre_run_cell", self._cell_begins)
        shell.events.register("post_run_cell", self._cell_ended)

    def heard(self) -> None:
        """The page has said something."""
        self._last = time.monotonic()

    def silence(self) -> float:
        """Seconds of silence; 0 while a cell runs."""
        return 0.0 if self._busy else time.monotonic() - self._last

    def close(self) -> None:
        """Listen to the kernel no more."""
        self._shell.events.unregister("pre_run_cell", self._cell_begins)
        self._shell.events.unregister("post_run_cell", self._cell_ended)

    def _cell_begins(self, info: Any) -> None:
        self._busy = True

    def _cell_ended(self, result: Any) -> None:
        self._busy, self._last = False, time.monotonic()
