"""Whom a cell tells of each step; a contender sets `step` before the cell is executed."""

from collections.abc import Callable


def step() -> None:
    """Take no turn: the cell trains by itself."""


def tell(turn: Callable[[], None]) -> None:
    """Have cells tell `turn` of each step."""
    global step
    step = turn
