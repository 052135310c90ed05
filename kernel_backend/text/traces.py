"""Format the operations of a recorded trace as a table."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.model.launch.trace import RankTrace
from kernel_backend.text import counted

TRACE_HEAD = ("operation", "calls", "CPU ms", "device ms")
NO_TRACE = "no trace has been recorded: daylight profile 12 --steps 10 records one while the training runs"


def trace_rows(traces: Sequence[RankTrace]) -> list[list[str]]:
    """Return a row for each operation of the first recorded rank: its calls, CPU and device time over all steps."""
    shown = traces[0].operations if traces else ()
    return [[each.name[:60], f"{each.calls:,}", f"{each.cpu_ms:.2f}", f"{each.device_ms:.2f}"] for each in shown]


def trace_lines(number: int, traces: Sequence[RankTrace]) -> list[str]:
    """Return lines below the table of a trace: the steps and ranks that it covers, and how to download the traces."""
    if not traces:
        return []
    first = traces[0]
    lines = [f"steps {first.first} to {first.last} of rank {first.rank}; milliseconds of the operation alone"]
    if len(traces) > 1:
        lines.append(f"{counted(len(traces) - 1, 'more rank')}: see --json")
    names = " ".join(f"trace-rank-{each.rank}.json" for each in traces)
    return [*lines, f"daylight artifacts {number} --out traces downloads {names}: open them in https://ui.perfetto.dev"]
