"""Average logged values over an epoch and over all ranks, with a state that can be saved within the epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernel_backend.runner.forms.lightning.api import Metadata, ResultCollection, ResultMetric, Sync

_PLAIN = ("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph", "add_dataloader_idx")
_MORE = ("dataloader_idx", "metric_attribute")


class Results(ResultCollection):
    """Values that a module logs during an epoch; those logged per epoch are averaged over the samples of all ranks."""

    def __init__(self, training: bool, weightless: Callable[[], bool], shared: Callable[[], bool]) -> None:
        """Set up an empty collection of logged values.

        `weightless` returns True while this rank's share is empty. `shared` returns True while each rank processes only
        its own share of the samples.
        """
        super().__init__(training)
        self._weightless, self._shared = weightless, shared

    def _extract_batch_size(self, value: Any, batch_size: int | None, meta: Any) -> int:
        return 0 if self._weightless() else super()._extract_batch_size(value, batch_size, meta)

    def _get_cache(self, result_metric: Any, on_step: bool) -> Tensor | None:  # type: ignore[override]
        meta = result_metric.meta
        if on_step or not meta.on_epoch or result_metric._computed is not None or not result_metric.is_tensor:
            return ResultCollection._get_cache(result_metric, on_step)
        asked = meta.sync.should
        meta.sync.should = self._shared()
        found = ResultCollection._get_cache(result_metric, on_step)
        meta.sync.should = asked
        return found

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the values logged so far, in the order in which each was logged first."""
        return [_saved(key, each) for key, each in self.items()]

    def load_state_dict(self, state: list[dict[str, Any]], reduce: Any, metric: Callable[[str], Any]) -> None:
        """Restore logged values that `state_dict` returned.

        `reduce` is the function by which the strategy reduces values over ranks. `metric` returns the metric object at
        a path in the module.
        """
        self.clear()
        for each in state:
            self[each["key"]] = _restored(each, reduce, metric)


def _saved(key: str, result: Any) -> dict[str, Any]:
    meta = result.meta
    found = {
        "key": key,
        "meta": {name: getattr(meta, name) for name in (*_PLAIN, *_MORE)} | {"reduce_fx": meta.reduce_fx.__name__},
        "sync": {"should": meta.sync.should, "rank_zero_only": meta.sync.rank_zero_only, "op": meta.sync.op},
        "is_tensor": result.is_tensor,
        "has_reset": result.has_reset,
        "updates": result._update_count,
        "cache": _copy(result._forward_cache),
    }
    if result.is_tensor:
        found["value"] = _copy(result.value)
        if meta.is_mean_reduction:
            found["samples"] = _copy(result.cumulated_batch_size)
    return found


def _restored(saved: dict[str, Any], reduce: Any, metric: Callable[[str], Any]) -> Any:
    words = dict(saved["meta"])
    words["reduce_fx"] = getattr(torch, words["reduce_fx"])
    meta = Metadata(**words)
    sync = saved["sync"]
    meta.sync = Sync(fn=reduce, _should=sync["should"], rank_zero_only=sync["rank_zero_only"], _op=sync["op"])
    result = ResultMetric(meta, saved["is_tensor"])
    result.has_reset, result._update_count, result._forward_cache = saved["has_reset"], saved["updates"], saved["cache"]
    if not saved["is_tensor"]:
        result.value = metric(words["metric_attribute"])
        return result
    result.value = saved["value"]
    if "samples" in saved:
        result.cumulated_batch_size = saved["samples"]
    return result


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
