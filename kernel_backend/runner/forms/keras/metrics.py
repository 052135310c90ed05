"""Sum the states of Keras metrics over the ranks, so that the results cover the samples of all ranks."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import keras
import torch

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.forms.keras.values import read, write
from kernel_backend.runner.ranks.backends import Ranks


class MetricSums:
    """Sums over the ranks of the states of a model's metrics. Each state must be a sum over samples."""

    def __init__(self, model: Any, ranks: Ranks, device: torch.device) -> None:
        """Use the metrics of `model`; with several ranks, raise InvalidDefinition if a state is no sum over samples.

        The states are summed over the ranks as tensors on `device`.
        """
        self._model, self._ranks, self._device = model, ranks, device
        if ranks.size > 1:
            for metric in _leaves(model.metrics):
                check_sums(metric)
                if isinstance(metric, keras.metrics.MeanMetricWrapper):
                    metric._fn = _of_samples(metric.name, metric._fn)

    @property
    def _states(self) -> list[torch.Tensor]:
        return [read(each) for each in self._model.metrics_variables]

    def add_up(self) -> None:
        """Replace the metrics' states on every rank by their sums over the ranks; all ranks must call it."""
        states = self._states
        if self._ranks.size == 1 or not states:
            return
        with torch.no_grad():
            # In float64, as float32 holds whole numbers, such as sample counts, only up to 16 million.
            flat = torch.cat([each.detach().reshape(-1).to("cpu", torch.float64) for each in states])
            total = self._ranks.allreduce_sum(flat.to(self._device), "metrics").to("cpu")
            parts = torch.split(total, [each.numel() for each in states])
            self.put([part.view(each.shape).to(each.dtype) for each, part in zip(states, parts, strict=True)])

    def take(self) -> list[torch.Tensor]:
        """Return copies of the metrics' states on this rank, which `put` can restore."""
        return [each.detach().clone() for each in self._states]

    def put(self, states: list[torch.Tensor]) -> None:
        """Overwrite the metrics' states with `states`, which `take` returned."""
        for variable, before in zip(self._model.metrics_variables, states, strict=True):
            write(variable, before)


def _leaves(metrics: list[Any]) -> Iterator[Any]:
    for each in metrics:
        inner = list(getattr(each, "metrics", ()))
        yield from _leaves(inner) if inner else [each]


def check_sums(metric: Any) -> None:
    """Raise InvalidDefinition if the user's metric does more in `update_state` than add to its variables."""
    for kind in type(metric).__mro__:
        if kind.__module__.partition(".")[0] == "keras":
            return
        if "update_state" in vars(kind):
            if not _only_adds(vars(kind)["update_state"]):
                raise InvalidDefinition(
                    f"the metric {metric.name} is a {kind.__name__}, whose update_state does more than add to its "
                    "variables, so that its value over several slots cannot be known: have it only call assign_add "
                    "there and compute the rest in result(), or take --slots 1"
                )
            return


def _of_samples(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function of the metric `name`, to raise InvalidDefinition if the function returns a single number.

    It must return one value for each sample. A number of the whole batch, such as an F1 score, cannot be averaged over
    ranks.
    """

    @functools.wraps(function)
    def checked(y_true: Any, y_pred: Any, **settings: Any) -> Any:
        found = function(y_true, y_pred, **settings)
        if not tuple(getattr(found, "shape", ())):  # of a tensor of TensorFlow, a shape without dimensions is true
            raise InvalidDefinition(
                f"the metric {name} is one number of a batch, whose mean depends on the number of slots: "
                "return one value for each sample, or take a keras.metrics.Metric or --slots 1"
            )
        return found

    return checked


def _only_adds(function: Any) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(each, ast.Attribute) for each in targets):
                return False
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "assign"
            and not (node.args and _adds_to(node.args[0], ast.unparse(node.func.value)))
        ):
            return False
    return True


def _adds_to(value: ast.expr, variable: str) -> bool:
    """Return True if an expression adds a value to `variable`, as in `self.total + x`."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
        return False
    return variable in (ast.unparse(value.left), ast.unparse(value.right))
