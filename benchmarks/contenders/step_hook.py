"""Hook that a cell calls before each step; a contender sets it before the cell is executed."""

from collections.abc import Callable


def step() -> None:
    """Do nothing: the cell trains by itself."""


def install(hook: Callable[[], None]) -> None:
    """Have cells call `hook` before each step."""
    global step
    step = hook
