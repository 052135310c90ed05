"""Detect losses that stay nan or infinite, and tell the user in which step and layer or parameter they began."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.errors import NotFinite
from kernel_backend.model.experiment import OnNan

IN_A_ROW = 3  # steps; a gradient scaler may lose one or two while it searches its scale


class LossNotFinite(Exception):
    """Error about a loss that is not finite, raised before it changes the weights; the text says where and why."""


class Finite:
    """Check of one objective's losses: warns of the first that is not finite, then acts as `--on-nan` says."""

    def __init__(self, on_nan: OnNan, place: str, note: Callable[[str], None]) -> None:
        """Set up the check; `place` says where the code of the loss function is, and `note` shows the user a text.

        `on_nan` is the value of the option `--on-nan`.
        """
        self._on_nan, self._place, self._note = on_nan, place, note
        self._streak: Tensor | int = 0
        self._first = ""  # description of the first loss in the streak
        self._noted = False
        self._loss: Tensor | float = 0.0

    @property
    def waits(self) -> bool:
        """Return True if the count of non-finite losses is on a GPU, so that `check` would have to wait for the GPU."""
        return isinstance(self._streak, Tensor)

    @property
    def broken(self) -> bool:
        """Return True if the newest loss is known to be non-finite, without waiting for a GPU."""
        return not self.waits and bool(self._streak)

    def take(self, step: int, loss: Tensor | float, find: Callable[[], str]) -> None:
        """Count the losses in a row that were not finite, up to this step's; call it before the weights are updated.

        `find` is called for the first loss that is not finite, and returns text on where it comes from. With `--on-nan
        go_back` such a loss raises LossNotFinite.
        """
        self._loss = loss
        if self._on_nan == "fail" and isinstance(loss, Tensor) and loss.device.type != "cpu":
            self._streak = (self._streak + 1) * (~torch.isfinite(loss)).int()
            return
        value = float(loss)
        if math.isfinite(value):
            self._streak = 0
            return
        if self._streak == 0:
            self._first = f"the loss is {_word(value)} at step {step} ({self._place}): {find()}"
            if self._on_nan == "go_back":
                raise LossNotFinite(self._first)
            if not self._noted:
                self._noted = True
                self._note(self._first)
        self._streak += 1

    def check(self, step: int, model: nn.Module, last: bool) -> None:
        """With `--on-nan stop`, raise NotFinite if the losses of several steps in a row were not finite.

        If `step` is the `last` one of the training, one such loss suffices if some weights are not finite either.
        """
        streak = int(self._streak) if self._on_nan == "fail" else 0
        if streak == 0 or (streak < IN_A_ROW and not (last and bad_parameter(model))):
            return
        found = self._first.partition(f"({self._place}): ")[2] or bad_parameter(model)
        raise NotFinite(
            f"the loss is {_word(float(self._loss))} since step {step - streak + 1} ({self._place})"
            f"{': ' if found else ''}{found}. A lower learning rate or --clip 1.0 may help; --on-nan note trains on, "
            "--on-nan go_back leaves out the steps that led to it"
        )


def bad_parameter(model: nn.Module) -> str:
    """Return the name and a description of the first parameter that is not finite; "" if all are finite."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"parameter {name} is {_word_of(parameter)}"
    return ""


def bad_value(name: str, value: Any) -> str:
    """Return text on the first tensor in `value` that is not finite; "" if all are finite.

    `name` says in the text what the value is, such as `input`.
    """
    if isinstance(value, Tensor):
        is_bad = value.is_floating_point() and not torch.isfinite(value).all()
        return f"the {name} of the batch has {_word_of(value)}" if is_bad else ""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return next((found for each in parts if (found := bad_value(name, each))), "")


@contextmanager
def first_bad_layer(model: nn.Module) -> Iterator[list[str]]:
    """Watch the model's layers in the `with` block for outputs that are not finite.

    Yields a list. A description of the first such layer is appended to it.
    """
    found: list[str] = []

    def heard(name: str, module: nn.Module, output: Any) -> None:
        if not found and bad_value("output", output):
            found.append(f"layer {name or 'model'} ({type(module).__name__}) gives {_word_in(output)}")

    hooks = [
        module.register_forward_hook(lambda module, _, output, name=name: heard(name, module, output))
        for name, module in model.named_modules()
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _word_in(value: Any) -> str:
    return bad_value("output", value).rpartition(" ")[2]


def _word_of(values: Tensor) -> str:
    return "nan" if torch.isnan(values).any() else "inf"


def _word(loss: float) -> str:
    return "nan" if math.isnan(loss) else "-inf" if loss < 0 else "inf"
