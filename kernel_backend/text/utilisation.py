"""Format the use of slots as the rows of a table and as lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernel_backend.model.launch.utilisation import RankUse, SlotUse, Utilisation
from kernel_backend.model.sizes import size
from kernel_backend.model.views.slowness import percent
from kernel_backend.text import counted

SHOWN_RANKS = 64
NOTHING = "nothing is measured yet: the first sample comes some seconds after the ranks have started"
UNKNOWN = "unknown"
_PLACES = ("slots", "node", "period")


def _degrees(value: float) -> str:
    return f"{value:.0f} °C"


def _watts(value: float) -> str:
    return f"{value:.0f} W"


def _cores(value: float) -> str:
    return f"{value:.2f} cores"


def _bytes(value: float) -> str:
    return size(int(value))


_COLUMNS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "gpu": ("GPU", percent),
    "cpu": ("CPU", _cores),
    "memory": ("memory", _bytes),
    "gpu_memory": ("GPU memory", _bytes),
    "device_memory": ("of all", _bytes),
    "device_total": ("of", _bytes),
    "temperature": ("temperature", _degrees),
    "power": ("GPU power", _watts),
    "cpu_power": ("CPU power", _watts),
}


def use_table(found: Utilisation) -> tuple[list[str], list[list[str]]]:
    """Return column names and rows of a table of slot use, now and over the whole run, for each rank and in all.

    Quantities that no slot measures have no column.
    """
    uses = [*_named("all", "", found), *_of_ranks(found.ranks)] if len(found.ranks) != 1 else _of_ranks(found.ranks)
    uses = [each for each in uses if each[3].seconds]
    columns = [name for name in _COLUMNS if any(getattr(use, name) is not None for *_, use in uses)]
    rows = [[*place, *(_text(use, name) for name in columns)] for *place, use in uses]
    return [*_PLACES, *(_COLUMNS[name][0] for name in columns)], rows


def now_table(found: Utilisation) -> tuple[list[str], list[list[str]]]:
    """Return column names and rows of a table with the newest measurements of each rank's slot.

    There are no rows if nothing is measured now.
    """
    head, rows = use_table(found)
    return [*head[:2], *head[3:]], [[*row[:2], *row[3:]] for row in rows if row[2] == "now"]


def use_lines(found: Utilisation) -> list[str]:
    """Return lines below the table of slot use: how many ranks are left out, measured slot-hours, and energy."""
    more = len(found.ranks) - SHOWN_RANKS
    lines = [f"{counted(more, 'more rank')}: see --json"] if more > 0 else []
    if not found.whole.seconds:
        return lines
    kwh, hours = found.whole.kwh, found.whole.seconds / 3600
    energy = "energy unknown: no counter of it can be read on these nodes" if kwh is None else f"{kwh:.3g} kWh"
    return [*lines, f"measured for {hours:.3g} slot-hours, {energy}"]


def now_lines(found: Utilisation) -> list[str]:
    """Return a line with the newest measurements of each rank's slot, for output that is no terminal."""
    lines = []
    for each in found.ranks[:SHOWN_RANKS]:
        if (use := each.latest) is not None:
            known = (f"{_COLUMNS[name][0]} {_text(use, name)}" for name in _COLUMNS if getattr(use, name) is not None)
            lines.append(f"slot of rank {each.rank}: " + ", ".join(known))
    return lines


def _of_ranks(ranks: Sequence[RankUse]) -> list[tuple[str, str, str, SlotUse]]:
    return [row for each in ranks[:SHOWN_RANKS] for row in _named(f"rank {each.rank}", each.node, each)]


def _named(name: str, node: str, of: RankUse | Utilisation) -> list[tuple[str, str, str, SlotUse]]:
    now = [(name, node, "now", of.latest)] if of.latest is not None else []
    return [*now, (name, node, "whole run", of.whole)]


def _text(use: SlotUse, name: str) -> str:
    value = getattr(use, name)
    return UNKNOWN if value is None else _COLUMNS[name][1](value)
