"""Import httpx without its command line interface, which would import rich and pygments, and without its log lines."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

_COMMAND_LINE = "httpx._main"
_hidden = set[str]()  # addresses of services


def httpx_module() -> Any:
    """Return the module httpx, which is imported without its command line interface at the first call.

    A None in `sys.modules` makes the import of that interface fail, which httpx allows, as it also works where click or
    rich is missing. Every command, launcher and kernel imports httpx: this takes 0.08 s of CPU time instead of 0.36 s.
    """
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    if "httpx" not in modules:
        modules.setdefault(_COMMAND_LINE, None)
    try:
        import httpx
    finally:
        if modules.get(_COMMAND_LINE, sys) is None:
            modules.pop(_COMMAND_LINE, None)  # another thread may have removed it meanwhile
    return httpx


def hide_requests(address: str) -> None:
    """Make httpx log no requests to a service: in a notebook that logs at level INFO each poll would print a line."""
    if not _hidden:
        logging.getLogger("httpx").addFilter(_is_of_others)
    _hidden.add(address)


def _is_of_others(record: logging.LogRecord) -> bool:
    url = str(record.args[1]) if isinstance(record.args, tuple) and len(record.args) > 1 else ""
    return not url.startswith(tuple(_hidden))
