"""Text about the training and the slot time that a search has used."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.model.experiment import Config
from kernel_backend.model.search.records import Limit
from kernel_backend.model.views.starting import counted, duration
from kernel_backend.search.report.history import SearchHistory

_SHARES = {2: "half", 3: "third", 4: "quarter"}
_LIMITS: dict[Limit, str] = {"budget": "budget", "max_time": "time"}


def usage_text(config: Config, history: SearchHistory, spent: float) -> str:
    """Format what a search has used after `spent` slot-seconds; "" before it has used any.

    Example: `asha: after epochs 1 and 4 the best quarter goes on · 99 epochs trained in 1 min 21 s of slot time; its
    budget is used up`.
    """
    search = config.search
    if search is None or not spent:
        return ""
    of = "" if search.budget is None else f" of {duration(search.budget)}"
    why = "" if history.closed is None else f"; its {_LIMITS[history.closed]} is used up"
    if config.follows:
        done = f"{counted(history.trained, 'checkpoint')} measured"
    else:
        unit = "epoch" if config.steps is None else "step"
        method = history.settings.method + _rungs_text(history, search.eta, unit)
        done = f"{method} \u00b7 {counted(history.trained, unit)} trained"
    return f"{done} in {duration(spent)}{of} of slot time{why}"


def _rungs_text(history: SearchHistory, eta: int, unit: str) -> str:
    """Return which trials go on, and after which lengths; "" for a method without rungs."""
    if not history.brackets:
        return ""
    units = [rung.unit for rung in history.brackets[0].rungs[:-1]]
    several = len(history.brackets) > 1 or not units
    where = "at each rung" if several else f"after {unit}{'s' if len(units) > 1 else ''} {_listed(units)}"
    return f": {where} the best {_SHARES.get(eta, f'1/{eta}')} goes on"


def _listed(units: Sequence[int]) -> str:
    return " and ".join(part for part in (", ".join(map(str, units[:-1])), str(units[-1])) if part)
