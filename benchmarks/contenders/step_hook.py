"""Store the hook, a function that a cell calls before each step; a contender sets it before the cell is executed."""

from collections.abc import Callable


def step() -> None:
    """Do nothing: the cell trains by itself."""


def install(hook: Callable[[], None]) -> None:
    """Set the hook that cells call before each step."""
    global step
    step = hook
