"""Copy values that a program logs to tqdm, TensorBoard, Weights & Biases and MLflow; its own logging goes on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from kernel_backend.definition.reported.labels import labelled
from kernel_backend.runner.on_import import OnImport

Hear = Callable[[Mapping[str, Any]], None]  # values by name, of any types


class Trackers:
    """Patches of methods of experiment trackers (tqdm, TensorBoard, ...): logged values also go to the function `hear`.

    A tracker is patched when the program imports it.
    """

    def __init__(self, hear: Hear, call: Callable[..., object]) -> None:
        """Patch the trackers; `call(function, *given)` calls what reads the values that the program logs."""
        self._hear, self._call = hear, call
        self._changed: list[tuple[Any, str, Any]] = []
        writers = dict.fromkeys(("torch.utils.tensorboard.writer", "tensorboardX.writer"), self._writer)
        self._imports = OnImport(
            {
                "tqdm.std": self._tqdm,
                "wandb.sdk.wandb_run": self._wandb,
                "mlflow.tracking.fluent": self._mlflow,
                **writers,
            }
        )
        self._imports.begin()

    def close(self) -> None:
        """Restore the trackers' own methods."""
        self._imports.close()
        for owner, name, was in reversed(self._changed):
            setattr(owner, name, was)

    def take(self, values: Callable[..., Mapping[str, Any]], args: Any, options: Any) -> None:
        """Pass on the values that `values` finds in the arguments of a call of a tracker."""
        self._hear(values(*args, **options))

    def _tqdm(self, module: ModuleType) -> None:
        self._before(module.tqdm, "set_postfix", _of_postfix)
        self._before(module.tqdm, "set_postfix_str", _of_text)

    def _writer(self, module: ModuleType) -> None:
        self._before(module.SummaryWriter, "add_scalar", _of_scalar)
        self._before(module.SummaryWriter, "add_scalars", _of_scalars)

    def _wandb(self, module: ModuleType) -> None:
        self._before(module.Run, "log", _of_dict)

    def _mlflow(self, module: ModuleType) -> None:
        self._before(module, "log_metric", _of_metric)
        self._before(module, "log_metrics", _of_metrics)

    def _before(self, owner: Any, name: str, values: Callable[..., Mapping[str, Any]]) -> None:
        """Patch the method `name` of `owner`: before each call, the values in its arguments are passed to `hear`.

        The function `values` returns these values by name, given the arguments of the call.
        """
        call = getattr(owner, name)

        @functools.wraps(call)
        def told(*args: Any, **options: Any) -> Any:
            self._call(self.take, values, args, options)
            return call(*args, **options)

        self._changed.append((owner, name, call))
        setattr(owner, name, told)


def _of_postfix(bar: Any, ordered_dict: Any = None, refresh: bool = True, **values: Any) -> Mapping[str, Any]:
    return {name: _number(value) for name, value in {**dict(ordered_dict or {}), **values}.items()}


def _of_text(bar: Any, s: str = "", refresh: bool = True) -> Mapping[str, Any]:
    return labelled(str(s))


def _of_scalar(writer: Any, tag: str, scalar_value: Any, *rest: Any, **options: Any) -> Mapping[str, Any]:
    return {tag: scalar_value}


def _of_scalars(writer: Any, main_tag: str, tag_scalar_dict: Any, *rest: Any, **options: Any) -> Mapping[str, Any]:
    return {f"{main_tag}/{name}": value for name, value in dict(tag_scalar_dict).items()}


def _of_dict(run: Any, data: Any, *rest: Any, **options: Any) -> Mapping[str, Any]:
    return dict(data)


def _of_metric(key: str, value: Any, *rest: Any, **options: Any) -> Mapping[str, Any]:
    return {key: value}


def _of_metrics(metrics: Any, *rest: Any, **options: Any) -> Mapping[str, Any]:
    return dict(metrics)


def _number(value: Any) -> Any:
    """Return the number in a text such as `0.123` or `97.3%`, as from `set_postfix(acc=f"{acc:.3f}")`; None if none.

    A value that is no text is returned unchanged.
    """
    return labelled(f"value: {value}").get("value") if isinstance(value, str) else value
