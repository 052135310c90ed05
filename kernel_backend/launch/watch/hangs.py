"""Detect a gang that hangs, and the rank that causes it, from heartbeats and stack traces of ranks: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kernel_backend.launch.watch.stacks import in_step_with_others, main_stack, shortened, waits_for_peers
from kernel_backend.model.frames import Call, Sources, users_frame
from kernel_backend.model.launch.progress import OF_START, Phase, Tick, limit
from kernel_backend.model.trial import HANG, Failure
from kernel_backend.text import duration

_MOST_TEXT = 12_000  # characters of stacks in a record; the attempt's folder has all of them
_WHERE: dict[Phase, str] = {
    **{phase: f"while {words}" for phase, words in OF_START.items()},
    "first step": "in its first step, {step}",
    "step": "in step {step}",
    "validation": "at the validation after step {step}",
    "checkpoint": "at the checkpoint of step {step}",
    "finishing": "after its last step, {step}",
    "waiting": "at its target, after step {step}",
}


class RankState(NamedTuple):
    """State of a running rank: its newest heartbeat, seconds since its last progress, and its stack traces.

    The stack traces are "" if the rank has written none.
    """

    tick: Tick
    idle: float
    stacks: str = ""


def overdue(states: Mapping[int, RankState], hang_timeout: float) -> bool:
    """Return True if one of these running ranks has made no progress for longer than is allowed.

    The limit is `hang_timeout`, in seconds, or longer in a slow phase such as a checkpoint. As ranks wait for each
    other, the longest limit of any of the ranks applies to all.
    """
    longest = max((limit(state.tick.phase, hang_timeout) for state in states.values()), default=0.0)
    return any(state.idle > longest for state in states.values())


def hang(states: Mapping[int, RankState], sources: Sources, line: Callable[[str, int], str], at: float) -> Failure:
    """Return the failure record of a gang that hangs; it has the stack traces of all ranks, those of the cause first.

    `line(file, number)` returns a line of a source file. `at` is the time of the failure, in seconds since the epoch.
    """
    rank = blamed(states)
    state = states[rank]
    stack = [call._replace(text=line(call.file, call.line).strip()) for call in main_stack(state.stacks)]
    frames = tuple(frame for call in reversed(stack) if (frame := users_frame(call, sources)))
    everyone = sorted(states, key=lambda other: (other != rank, other))
    return Failure(
        rank=rank,
        type=HANG,
        message=f"{_idle(rank, state)}: {_stand(states, rank, stack, sources)}",
        step=state.tick.about,
        frames=frames,
        traceback=_told({other: states[other] for other in everyone}),
        at=at,
    )


def blamed(states: Mapping[int, RankState]) -> int:
    """Return the rank that causes a hang: the other ranks wait for it.

    It is a rank that does not answer (stopped, or blocked by a disk). If all answer, it is one that does not wait for
    other ranks. If all wait, it is one that waits in code that the other ranks do not reach, or else the one at the
    lowest step.
    """
    longest = max(state.idle for state in states.values())
    still = {rank: state for rank, state in states.items() if state.idle > longest / 2}
    silent = [rank for rank, state in still.items() if not state.stacks]
    stacks = {rank: main_stack(state.stacks) for rank, state in still.items()}
    busy = [rank for rank in still if not waits_for_peers(stacks[rank])]
    astray = [rank for rank in still if not in_step_with_others(stacks[rank])]
    suspects = silent or busy or astray or list(still)
    return min(suspects, key=lambda rank: (still[rank].tick.step, -still[rank].idle, rank))


def _idle(rank: int, state: RankState) -> str:
    where = _WHERE[state.tick.phase].format(step=state.tick.step)
    return f"rank {rank} made no progress for {duration(state.idle)} {where}"


def _stand(states: Mapping[int, RankState], rank: int, stack: list[Call], sources: Sources) -> str:
    if not states[rank].stacks:
        return "it does not answer, as a process does that is stopped or waits for a disk"
    if not stack:
        return "where it stands is not known"
    mine = next((frame for call in stack if (frame := users_frame(call, sources))), None)
    place = f"{mine.where}, in {mine.function}" if mine else f"{stack[0].file} line {stack[0].line}"
    if not waits_for_peers(stack):
        return f"it stands at {place}"
    alone = len(states) == 1
    return f"it waits at {place}" if alone else f"it waits for its peers at {place}, and they for others"


def _told(states: Mapping[int, RankState]) -> str:
    each = _MOST_TEXT // len(states)
    return "\n\n".join(
        f"rank {rank}, idle for {duration(state.idle)} in phase {state.tick.phase!r}, "
        f"step {state.tick.step}:\n" + (shortened(state.stacks, each) or "(no answer)")
        for rank, state in states.items()
    )
