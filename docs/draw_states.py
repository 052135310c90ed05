"""Draw the tables of `kernel_backend/model/states.py` into `explanation/states.md`, as Mermaid state diagrams.

python docs/draw_states.py            rewrite the page where it is out of date
python docs/draw_states.py --check    change nothing; exit code 1 where it is
"""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from typing import Any

from generated import DOCS, keep_current

from kernel_backend.model import states as s

PAGE = DOCS / "explanation" / "states.md"
MACHINES: dict[str, tuple[dict[Any, Any], StrEnum, frozenset[Any]]] = {
    "experiment": (s.EXPERIMENT, s.ExperimentState.ACTIVE, s.EXPERIMENT_ENDED),
    "trial": (s.TRIAL, s.TrialState.QUEUED, s.TRIAL_ENDED),
    "attempt": (s.ATTEMPT, s.AttemptState.PENDING, frozenset({s.AttemptState.ENDED})),
}


def arrows(table: dict[Any, Any]) -> dict[tuple[StrEnum, StrEnum], list[str]]:
    """Map each pair of states to the events that lead from one to the other, with their guards."""
    found: dict[tuple[StrEnum, StrEnum], list[str]] = {}
    for (state, event), target in table.items():
        name = event.__name__.lower()
        if isinstance(target, s.Choice):
            guard = target.guard.replace("_", " ")
            found.setdefault((state, target.if_true), []).append(f"{name} ({guard})")
            found.setdefault((state, target.if_false), []).append(f"{name} (otherwise)")
        else:
            found.setdefault((state, target), []).append(name)
    return found


def diagram(table: dict[Any, Any], first: StrEnum, ended: frozenset[Any]) -> str:
    """Return one Mermaid state diagram: the initial state, the arrows in the table's order, the final states."""
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    lines += [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows(table).items()]
    lines += [f"    {state} --> [*]" for state in type(first) if state in ended]
    return "\n".join(lines)


def drawn(page: str) -> str:
    """Return the page with each block from `<!-- states: NAME -->` to `<!-- end -->` drawn anew; raises KeyError."""

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}\n```mermaid\n{diagram(*MACHINES[found[2]])}\n```\n{found[3]}"

    return re.sub(r"(<!-- states: (\w+) -->)\n.*?(<!-- end -->)", block, page, flags=re.DOTALL)


if __name__ == "__main__":
    sys.exit(keep_current({PAGE: drawn(PAGE.read_text(encoding="utf-8"))}, "model/states.py"))
