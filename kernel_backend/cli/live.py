"""Show a live display, such as that of `daylight top`: a table redrawn in place on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from kernel_backend.cli.output import drawn_table
from kernel_backend.commands.answer import Frame, Frames
from kernel_backend.printable import harmless
from kernel_backend.text.terminal import tell

if TYPE_CHECKING:
    from rich.console import Group, RenderableType


def show_frames(frames: Frames) -> None:
    """Show each frame of a live display until there are no more; Ctrl-C ends the display, and nothing else."""
    with contextlib.suppress(KeyboardInterrupt):
        _draw(frames) if sys.stdout.isatty() else _print(frames)


def _print(frames: Frames) -> None:
    before: object = None
    for frame in frames.frames:
        if frame.plain != before:  # nothing new was delivered
            for line in frame.plain:
                tell(f"{time.strftime('%H:%M:%S')} {line}")
        before = frame.plain
    if before is not None:
        tell(frame.lines[0])


def _draw(frames: Frames) -> None:
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        for frame in frames.frames:
            live.update(_drawn(frame), refresh=True)


def _drawn(frame: Frame) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(harmless("\n".join(frame.lines)))]
    for table in frame.tables:
        rows = [[harmless(cell) for cell in row] for row in table.rows]
        parts.append(drawn_table(table.head, rows) if rows else Text(table.empty))
    return Group(*parts)
