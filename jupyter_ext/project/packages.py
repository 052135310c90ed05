"""Find which imported packages are installed, and so must be installed where a job runs, too."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec

from kernel_backend.installed_code import is_of_package


def installed_packages(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the given top-level packages that are installed in this interpreter.

    Modules of the project and of editable packages are left out, as a snapshot holds them.
    """
    return tuple(name for name in sorted(names) if name not in sys.stdlib_module_names and _is_installed(name))


def _is_installed(name: str) -> bool:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # a module that a cell has made
        return False
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any(map(is_of_package, places))
