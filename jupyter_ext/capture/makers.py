"""Find magics that may have bound a name without Python code, as a job cannot run them again."""

from __future__ import annotations

import re

from jupyter_ext.capture.cells import Magic
from jupyter_ext.capture.executed import Executed

_ANY = {"run", "pylab", "store", "load", "macro", "edit", "rerun", "recall"}  # these may bind any name
_NONE = {"!", "env", "set_env", "pip", "conda", "uv", "mamba", "cd", "load_ext", "reload_ext", "matplotlib", "config"}
# Cell magics that bind only the names in options such as `--out`.
_NAMED = {
    *("bash", "sh", "script", "cmd", "perl", "ruby", "pypy", "python", "python2", "python3"),
    *("html", "HTML", "svg", "SVG", "latex", "markdown", "javascript", "js", "writefile", "file"),
}


def maker(name: str, executed: Executed) -> tuple[str, int | None] | None:
    """Return the last magic that may have bound `name`, with the number of its cell; None if there is none."""
    for cell, parsed in reversed(list(zip(executed.cells, executed.parsed, strict=True))):
        for magic in reversed(parsed.magics):
            if _may_make(magic, name):
                return magic.text, cell.number
    return None


def _may_make(magic: Magic, name: str) -> bool:
    own = magic.name.removeprefix("%%")
    if own in _NONE:
        return False
    if own in _ANY or (magic.name.startswith("%%") and own not in _NAMED):
        return True
    return name in re.findall(r"\w+", magic.argument)
