"""Convert the cached data of a search to bytes and back, so that the first view after a restart is fast.

The bytes are a line of JSON with columns, then the reported units and values of all trials as binary arrays. Bytes of
another version, or of other settings, are not read: the cache is then computed again from the log.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from pydantic_core import from_json, to_json

from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.space import Space
from kernel_backend.model.states import TrialState
from kernel_backend.model.trial import Best
from kernel_backend.model.views.search_status import IncumbentPoint, TrialSummary
from kernel_backend.search.brackets import Bracket
from kernel_backend.search.report.history import SearchHistory, TrialHistory

FORMAT = 1  # raise it if packed histories change, or if the same log has another history
_LEVEL = 1  # of the compression: others take longer, and the values compress badly


@dataclass
class CachedSearch:
    """Cached data of a search: its history, its trials and their slot-seconds.

    `seq` is the sequence number of the newest message in the store when the cache was updated. Later changes are not in
    the cache.
    """

    history: SearchHistory
    seq: int = 0
    trials: dict[int, TrialSummary] = field(default_factory=dict)  # by index, in this order
    seconds: dict[int, float] = field(default_factory=dict)
    stored: int = 0  # number of the last log entry in what the store has of this

    @property
    def summaries(self) -> list[TrialSummary]:
        """Return the summaries of all trials, by index."""
        return list(self.trials.values())


def pack(cached: CachedSearch) -> bytes:
    """Return the cached data as bytes, which `unpack` reads."""
    history, trials = cached.history, cached.history.trials
    head = {
        **_made_for(history.settings),
        "seq": cached.seq,
        "entries": history.entries,
        "trained": history.trained,
        "limit": history.limit,
        "closed": history.closed,
        "columns": history.columns,
        "diverged": sorted(history.diverged),
        "incumbent": history.incumbent,
        "trials": [[index, each.params, each.parent, each.until, len(each.units)] for index, each in trials.items()],
        "summaries": [_summary(each) for each in cached.summaries],
        "seconds": list(cached.seconds.items()),
        "brackets": [_ladder(each) for each in history.brackets],
    }
    units, values = array("q"), array("d")
    for each in trials.values():
        units.extend(each.units)
        values.extend(each.values)
    line = to_json(head, inf_nan_mode="constants")
    return zlib.compress(b"\n".join((line, units.tobytes() + values.tobytes())), _LEVEL)


def unpack(packed: bytes, settings: Settings, space: Space, begun: float) -> CachedSearch | None:
    """Return the cached data from the bytes of `pack`; None if they are of another version or have other settings.

    `begun` is the time at which the search was created. If `history.restored` of the result is not None, the history
    has only those data of the search's brackets that views show: to apply further log entries, read the whole log
    instead.
    """
    line, _, arrays = zlib.decompress(packed).partition(b"\n")
    head = from_json(line)
    if any(head.get(name) != value for name, value in _made_for(settings).items()):
        return None
    history = SearchHistory(settings, space, begun)
    history.entries, history.trained = head["entries"], head["trained"]
    history.limit, history.closed, history.diverged = head["limit"], head["closed"], set(head["diverged"])
    history.know_columns(head["columns"])
    history.incumbent = [IncumbentPoint(**each) for each in head["incumbent"]]
    history.trials = dict(_trials(head["trials"], arrays))
    if history.replays:
        history.restored = [_bracket(each) for each in head["brackets"]]
    summaries = map(_unpacked_summary, head["summaries"])
    return CachedSearch(
        history, head["seq"], {each.index: each for each in summaries}, dict(head["seconds"]), stored=history.entries
    )


def _made_for(settings: Settings) -> dict[str, Any]:
    return {"format": FORMAT, "order": sys.byteorder, "settings": settings.to_json()}


def _trials(rows: list[Any], arrays: bytes) -> Iterator[tuple[int, TrialHistory]]:
    units, values = array("q"), array("d")
    half = len(arrays) // 2
    units.frombytes(arrays[:half])
    values.frombytes(arrays[half:])
    places = pairwise(accumulate((row[4] for row in rows), initial=0))
    for (index, params, parent, until, _), (begin, end) in zip(rows, places, strict=True):
        yield index, TrialHistory(params, parent, until, units[begin:end], values[begin:end])


def _summary(trial: TrialSummary) -> list[Any]:
    best = trial.best and [trial.best.value, trial.best.step, trial.best.epoch]
    return [trial.index, trial.state, trial.attempt, trial.failure, best]


def _unpacked_summary(row: list[Any]) -> TrialSummary:
    index, state, attempt, failure, best = row
    # Not `Best(...)`: this module has packed it, and to check each of thousands takes a third of the time.
    found = best and Best.model_construct(value=best[0], step=best[1], epoch=best[2])
    return TrialSummary(index, TrialState(state), attempt, failure, found)


def _ladder(bracket: Bracket) -> dict[str, Any]:
    return {"weight": bracket.weight, "rungs": [[rung.unit, rung.places] for rung in bracket.rungs]}


def _bracket(packed: dict[str, Any]) -> Bracket:
    bracket = Bracket([unit for unit, _ in packed["rungs"]], packed["weight"])
    for rung, (_, places) in zip(bracket.rungs, packed["rungs"], strict=True):
        for value, trial in places:
            rung.record(trial, value)
    return bracket
