"""Detect a hung gang and the rank to blame from each rank's progress and stacks: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kernel_backend.launch.watch.stacks import in_step_with_others, main_stack, shortened, waits_for_peers
from kernel_backend.model.frames import Call, Sources, users_frame
from kernel_backend.model.launch.progress import Phase, Tick, limit
from kernel_backend.model.trial import HANG, Failure
from kernel_backend.text import duration

_MOST_TEXT = 12_000  # characters of stacks in a record; the whole of them stays in the attempt's folder
_WHERE: dict[Phase, str] = {
    "starting": "before its training began",
    "first step": "in its first step, {step}",
    "step": "in step {step}",
    "validation": "at the validation after step {step}",
    "checkpoint": "at the checkpoint of step {step}",
    "finishing": "after its last step, {step}",
    "waiting": "at its target, after step {step}",
    "preparing": "in prepare",
}


class RankState(NamedTuple):
    """State of a living rank: its newest tick, the seconds since then, and its stacks (empty: no answer)."""

    tick: Tick
    idle: float
    stacks: str = ""


def overdue(standings: Mapping[int, RankState], hang_timeout: float) -> bool:
    """Return True if one of these living ranks has made no progress for too long.

    Ranks wait for each other: while one is in a slow phase, such as a checkpoint, all get that phase's limit.
    """
    longest = max((limit(standing.tick.phase, hang_timeout) for standing in standings.values()), default=0.0)
    return any(standing.idle > longest for standing in standings.values())


def hang(standings: Mapping[int, RankState], sources: Sources, line: Callable[[str, int], str], at: float) -> Failure:
    """Return the failure of a hung gang, with the stacks of all its ranks, the blamed one's first.

    `line` returns the text of a file's line.
    """
    rank = blamed(standings)
    standing = standings[rank]
    stack = [call._replace(text=line(call.file, call.line).strip()) for call in main_stack(standing.stacks)]
    frames = tuple(frame for call in reversed(stack) if (frame := users_frame(call, sources)))
    everyone = sorted(standings, key=lambda other: (other != rank, other))
    return Failure(
        rank=rank,
        type=HANG,
        message=f"{_idle(rank, standing)}: {_stand(standings, rank, stack, sources)}",
        step=standing.tick.about,
        frames=frames,
        traceback=_told({other: standings[other] for other in everyone}),
        at=at,
    )


def blamed(standings: Mapping[int, RankState]) -> int:
    """Return the rank that keeps the others waiting.

    It is one that does not answer (a stopped process, a dead disk); else one that answers and does not wait for its
    peers; else one that waits at a point that the others never reach; else the one that is least far.
    """
    longest = max(standing.idle for standing in standings.values())
    still = {rank: standing for rank, standing in standings.items() if standing.idle > longest / 2}
    silent = [rank for rank, standing in still.items() if not standing.stacks]
    stacks = {rank: main_stack(standing.stacks) for rank, standing in still.items()}
    busy = [rank for rank in still if not waits_for_peers(stacks[rank])]
    astray = [rank for rank in still if not in_step_with_others(stacks[rank])]
    suspects = silent or busy or astray or list(still)
    return min(suspects, key=lambda rank: (still[rank].tick.step, -still[rank].idle, rank))


def _idle(rank: int, standing: RankState) -> str:
    where = _WHERE[standing.tick.phase].format(step=standing.tick.step)
    return f"rank {rank} made no progress for {duration(standing.idle)} {where}"


def _stand(standings: Mapping[int, RankState], rank: int, stack: list[Call], sources: Sources) -> str:
    if not standings[rank].stacks:
        return "it does not answer, as a process does that is stopped or waits for a disk"
    if not stack:
        return "where it stands is not known"
    mine = next((frame for call in stack if (frame := users_frame(call, sources))), None)
    place = f"{mine.where}, in {mine.function}" if mine else f"{stack[0].file} line {stack[0].line}"
    if not waits_for_peers(stack):
        return f"it stands at {place}"
    alone = len(standings) == 1
    return f"it waits at {place}" if alone else f"it waits for its peers at {place}, and they for others"


def _told(standings: Mapping[int, RankState]) -> str:
    each = _MOST_TEXT // len(standings)
    return "\n\n".join(
        f"rank {rank}, idle for {duration(standing.idle)} in phase {standing.tick.phase!r}, "
        f"step {standing.tick.step}:\n" + (shortened(standing.stacks, each) or "(no answer)")
        for rank, standing in standings.items()
    )
