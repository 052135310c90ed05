"""Handle metric objects with `update`, `compute` and `reset`, such as torchmetrics': recognise, merge, compute."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.definition.metric_protocol import is_metric
from kernel_backend.runner.metrics.join import host_copy
from kernel_backend.runner.metrics.sums import number

States = list[tuple[dict[str, Any], int]]  # for each part of a metric: its states, and its number of updates


def mapping(found: Any) -> dict[str, Any]:
    """Return the dict `found`, which the user's `metrics` returned, with arrays converted to tensors.

    Raises InvalidDefinition if it is not a dict.
    """
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


def named_metrics(found: Any) -> dict[str, Any]:
    """Return the metric objects and numbers in `found`, the result of the user's `metrics`, by name.

    The items of torchmetrics collections are listed one by one. Raises InvalidDefinition if `found` is neither a metric
    object nor a dict.
    """
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
    """Return those parts of a torchmetrics metric that hold states: the metric itself and metrics inside it.

    Return [] for other metric objects.
    """
    modules: Iterable[Any] = metric.modules() if isinstance(metric, nn.Module) else ()
    return [each for each in modules if hasattr(each, "_reductions") and hasattr(each, "metric_state")]


def states_of(metric: Any) -> States:
    """Return copies, in host memory, of the states of a torchmetrics metric; empty for other metric objects."""
    return [(host_copy(dict(each.metric_state)), each._update_count) for each in _with_states(metric)]


def _reduced(values: list[Any], reduce: Callable[[Tensor], Tensor] | None) -> Any:
    """Combine the values that one state of a metric has on several ranks.

    `reduce` is the reduction that torchmetrics declares for the state; with None, values are stacked. Lists are
    concatenated.
    """
    if isinstance(values[0], list):
        return [each for value in values for each in value]
    if len(values) == 1:
        return values[0]
    stacked = torch.stack(values)
    return stacked if reduce is None else reduce(stacked)


def keep_to_itself(metric: Any) -> None:
    """Make a torchmetrics metric compute from this rank's state alone, as the other ranks do not call `compute`."""
    for each in _with_states(metric):
        each.distributed_available_fn = _never


def _never() -> bool:
    return False


def computed(name: str, metric: Any) -> dict[str, float]:
    """Return a metric's results as numbers, by name.

    The name is `name`, or the keys if `compute` returns a dict. Raises InvalidDefinition for a result that is not a
    number.
    """
    found = metric.compute()
    if isinstance(found, Mapping):
        return {str(own): number(own, each) for own, each in found.items()}
    return {name: number(name, found)}


def merge(metric: Any, per_rank: list[States], move: Callable[[Any], Any]) -> None:
    """Set a torchmetrics metric to the combined states of all ranks.

    `per_rank` has the results of `states_of` on each rank; `move` transfers a state to the metric's device.
    """
    if len(per_rank) == 1:
        return
    for module, states in zip(_with_states(metric), zip(*per_rank, strict=True), strict=True):
        updated = [state for state, updates in states if updates] or [states[0][0]]
        for name, reduce in module._reductions.items():
            setattr(module, name, move(_reduced([state[name] for state in updated], reduce)))
        module._update_count = sum(updates for _, updates in states)
        module._computed = None
