"""Objects with `update`, `compute` and `reset`, as torchmetrics has them: recognised, merged over ranks, read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.metrics.join import host_copy
from kernel_backend.runner.metrics.sums import number

States = list[tuple[dict[str, Any], int]]  # of each part of a metric its states, and how often it was updated


def mapping(found: Any) -> dict[str, Any]:
    """Return what `metrics` returned with arrays as tensors; raises InvalidDefinition unless it is a dict."""
    if not isinstance(found, Mapping):
        raise InvalidDefinition(
            f"metrics() returned a {type(found).__name__}; it must return a dict such as "
            '{"accuracy": (output.argmax(1) == target).float()}'
        )
    numpy = sys.modules.get("numpy")
    return {
        str(name): torch.as_tensor(each) if numpy is not None and isinstance(each, numpy.ndarray) else each
        for name, each in found.items()
    }


def is_metric(value: Any) -> bool:
    """Return whether the value is an object that is updated batch by batch and then computes."""
    kind = type(value)  # a class has no such methods for its objects' sake
    return all(callable(getattr(kind, name, None)) for name in ("update", "compute", "reset"))


def named_metrics(found: Any) -> dict[str, Any]:
    """Return metric objects and numbers by name, of a collection its parts; raises InvalidDefinition."""
    if is_metric(found) and not callable(getattr(found, "items", None)):
        return {type(found).__name__: found}
    named: dict[str, Any] = {}
    for name, each in found.items() if is_metric(found) else mapping(found).items():
        if is_metric(each) and callable(getattr(each, "items", None)):
            named |= named_metrics(each)
        else:
            named[str(name)] = each
    return named


def _with_states(metric: Any) -> list[Any]:
    """The parts of a metric of torchmetrics that have states of their own, itself among them."""
    modules: Iterable[Any] = metric.modules() if isinstance(metric, nn.Module) else ()
    return [each for each in modules if hasattr(each, "_reductions") and hasattr(each, "metric_state")]


def states_of(metric: Any) -> States:
    """Return copies of a metric's states on the host; none where it is not one of torchmetrics."""
    return [(host_copy(dict(each.metric_state)), each._update_count) for each in _with_states(metric)]


def _reduced(values: list[Any], reduce: Callable[[Tensor], Tensor] | None) -> Any:
    """States of several ranks as one, as torchmetrics reduces them."""
    if isinstance(values[0], list):
        return [each for value in values for each in value]
    if len(values) == 1:
        return values[0]
    stacked = torch.stack(values)
    return stacked if reduce is None else reduce(stacked)


def keep_to_itself(metric: Any) -> None:
    """Have a metric of torchmetrics compute what it was given here; it would wait for ranks that do not compute."""
    for each in _with_states(metric):
        each.distributed_available_fn = _never


def _never() -> bool:
    return False


def computed(name: str, metric: Any) -> dict[str, float]:
    """Return what a metric computes, by its name or by those that it gives; raises InvalidDefinition for no number."""
    found = metric.compute()
    if isinstance(found, Mapping):
        return {str(own): number(own, each) for own, each in found.items()}
    return {name: number(name, found)}


def merge(metric: Any, everyones: list[States], move: Callable[[Any], Any]) -> None:
    """Give a metric the states of all ranks as one; `move` brings them to its device."""
    if len(everyones) == 1:
        return
    for module, states in zip(_with_states(metric), zip(*everyones, strict=True), strict=True):
        updated = [state for state, updates in states if updates] or [states[0][0]]
        for name, reduce in module._reductions.items():
            setattr(module, name, move(_reduced([state[name] for state in updated], reduce)))
        module._update_count = sum(updates for _, updates in states)
        module._computed = None
