"""Average logged values over an epoch and over all ranks, with a state that can be saved within the epoch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernel_backend.runner.forms.lightning.api import Metadata, ResultCollection, ResultMetric, Sync

_PLAIN = ("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph", "add_dataloader_idx")
_MORE = ("dataloader_idx", "metric_attribute")
_NEUTRAL = {"sum": 0.0, "min": math.inf, "max": -math.inf}  # changes no result of the reduction


class Results(ResultCollection):
    """Values that a module logs during an epoch; those logged per epoch are averaged over the samples of all ranks."""

    def __init__(self, training: bool, samples: Callable[[], int], shared: Callable[[], bool]) -> None:
        """Set up an empty collection of logged values.

        `samples` returns the number of samples in this rank's share of the current batch. `shared` returns True while
        each rank processes only its own share of the samples.
        """
        super().__init__(training)
        self._samples, self._shared = samples, shared

    @property
    def _weightless(self) -> bool:
        """Return True within a batch of which this rank has no samples: what it logs then counts for nothing."""
        return self.batch is not None and not self._samples()

    def _extract_batch_size(self, value: Any, batch_size: int | None, meta: Any) -> int:
        return 0 if self._weightless else super()._extract_batch_size(value, batch_size, meta)

    def update_metrics(self, key: str, value: Any, batch_size: int) -> None:
        """Add a value to those logged under `key`.

        If it is to be synchronised at each step, the mean of that step is weighted by the ranks' samples.
        """
        result = self[key]
        meta = result.meta
        if not result.is_tensor or self.batch is None or not self._shared():
            super().update_metrics(key, value, batch_size)
            return
        if self._weightless and (neutral := _NEUTRAL.get(meta.sync.op)) is not None:
            value = torch.full_like(value, neutral, dtype=torch.get_default_dtype())
        synced = meta.on_step and meta.sync.should and meta.is_mean_reduction and not meta.sync.rank_zero_only
        if synced:
            meta.sync.should = False
        super().update_metrics(key, value, batch_size)
        if synced:
            meta.sync.should = True
            pair = torch.stack([value.detach().double(), torch.ones_like(value, dtype=torch.float64)]) * self._samples()
            total, samples = meta.sync.fn(pair, reduce_op="sum")
            result._forward_cache = (total / samples).to(result._forward_cache.dtype)

    def _get_cache(self, result_metric: Any, on_step: bool) -> Tensor | None:  # type: ignore[override]
        meta = result_metric.meta
        if on_step or not meta.on_epoch or result_metric._computed is not None or not result_metric.is_tensor:
            return ResultCollection._get_cache(result_metric, on_step)
        asked = meta.sync.should, meta.sync.op
        meta.sync.should = self._shared()
        if meta.is_mean_reduction:  # sums of values and of samples, which are divided
            meta.sync.op = "sum"
        found = ResultCollection._get_cache(result_metric, on_step)
        meta.sync.should, meta.sync.op = asked
        return found

    def reductions(self) -> dict[str, str]:
        """Return how the values logged at a step are combined over the ranks, by name: `mean`, `sum`, `min` or `max`.

        Values that the user had synchronised are equal on all ranks, so that their mean is the value.
        """
        return {
            self._forked_name(each, True)[1]: "mean" if each.meta.sync.should else each.meta.sync.op
            for _, each in self.valid_items()
            if each.is_tensor and each.meta.on_step
        }

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
