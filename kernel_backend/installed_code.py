"""Tell installed code from the user's by the paths of files alone, which is quick."""

from __future__ import annotations

import sysconfig
from pathlib import Path

# Also in the user site, in Debian's Python, and in the interpreter whose packages a virtual environment sees.
_PACKAGES = ("/site-packages/", "/dist-packages/")
_STANDARD_LIBRARY = tuple(f"{sysconfig.get_path(each)}/" for each in ("stdlib", "platstdlib"))


def is_of_package(path: Path | str) -> bool:
    """Return whether a file or folder belongs to an installed package."""
    text = f"{path}/"
    return any(each in text for each in _PACKAGES)


def is_installed(path: Path | str) -> bool:
    """Return whether a file or folder belongs to Python's standard library or to an installed package."""
    return is_of_package(path) or f"{path}/".startswith(_STANDARD_LIBRARY)
