"""Who looks at the notebook: a person, or a program that executes it."""

from __future__ import annotations

import os
from typing import Any


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
