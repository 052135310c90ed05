"""Format the seconds that each part of a training takes, as rows of a table and as lines."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.model.times import LABELS, PARTS, RankTimes, Split, Times
from kernel_backend.model.views.slowness import percent
from kernel_backend.text import counted

SHOWN_RANKS = 8
NOTHING = "nothing is known yet: times are measured from the second step on"
# Heads of columns for the parts with long names: all fit into 120 columns, uncut.
_SHORT = {
    "transfer": "copy",
    "forward": "forw.",
    "backward": "backw.",
    "communication": "comm.",
    "optimizer": "optim.",
    "checkpoint": "save",
    "validation": "valid.",
    "stall": "other",
}
TOP_HEAD = ("rank", "node", "now in", "steps/s", *(_SHORT.get(part, part) for part in PARTS))


def profile_head(times: Times) -> list[str]:
    """Return the column names of the table that shows how much time each part of a training (such as data) takes."""
    return ["", "last minute", "whole run", *(f"rank {each.rank}" for each in times.ranks[:SHOWN_RANKS])]


def profile_rows(times: Times) -> list[list[str]]:
    """Return a row for each part of a training: its shares of the time in the last minute, in the whole run, by rank.

    The last row has the time of a step. Empty if nothing has been measured yet.
    """
    if not times.whole.seconds:
        return []
    splits = [times.minute, times.whole]
    splits += [each.minute if times.live else each.whole for each in times.ranks[:SHOWN_RANKS]]
    rows = [
        [LABELS[part], *(percent(split.share(part)) for split in splits)] for part in PARTS if times.whole.share(part)
    ]
    return [*rows, ["a step takes", *map(step_text, splits)]]


def profile_lines(times: Times) -> list[str]:
    """Return lines below the table of a training's parts: what columns of ranks show, and the main cause of delay."""
    period = "their last minute" if times.live else "the whole run"
    more = len(times.ranks) - SHOWN_RANKS
    lines = [f"columns of ranks: {period}"] if len(times.ranks) > 1 else []
    lines += [f"{counted(more, 'more rank')}: see --json"] if more > 0 else []
    return [*lines, times.sentence] if times.sentence else lines


def step_text(split: Split) -> str:
    """Return the time of a step, in milliseconds.

    Examples
    --------
    >>> step_text(Split(steps=4, parts={"data": 0.05}))
    '12.5 ms'
    """
    return f"{1000 * split.seconds / split.steps:.3g} ms" if split.steps else ""


def since(before: Times, now: Times) -> list[RankTimes]:
    """Return the ranks' times in `now`, with `minute` replaced by the time since the earlier times `before`.

    For a rank that has taken no step since then, `minute` is unchanged (the last minute).
    """
    earlier = {each.rank: each.whole for each in before.ranks}
    found = []
    for each in now.ranks:
        first = earlier.get(each.rank)
        grown = first is not None and each.whole.steps > first.steps
        recent = _difference(each.whole, first) if grown and first is not None else each.minute
        found.append(each.model_copy(update={"minute": recent}))
    return found


def top_rows(ranks: Sequence[RankTimes]) -> list[list[str]]:
    """Return a row for each rank: its current part, its speed, and the share of each part."""
    return [[str(each.rank), each.node, each.now or "ended", *_recent(each.minute)] for each in ranks]


def top_lines(ranks: Sequence[RankTimes]) -> list[str]:
    """Return a line for each rank with the shares of its parts, for output that is no terminal."""
    return [
        f"rank {each.rank} ({each.node}): "
        + ", ".join(f"{part} {percent(each.minute.share(part))}" for part in PARTS if each.minute.share(part) >= 0.005)
        for each in ranks
    ]


def _recent(split: Split) -> list[str]:
    speed = f"{split.steps / split.seconds:.3g}" if split.seconds else ""
    return [speed, *(percent(split.share(part)) if split.seconds else "" for part in PARTS)]


def _difference(whole: Split, first: Split) -> Split:
    parts = {part: max(0.0, whole.parts.get(part, 0.0) - first.parts.get(part, 0.0)) for part in PARTS}
    return Split(steps=whole.steps - first.steps, parts=parts)
