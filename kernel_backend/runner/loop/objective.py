"""Define an objective of a training: a loss with its optimizers, schedules, gradient sum and gradient scaler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.definition.functions import Functions
from kernel_backend.runner.gradients.reducer import Gradients, Parameters
from kernel_backend.runner.loop.finite import Finite

Optimizers = Mapping[str, torch.optim.Optimizer]  # by name; the name of a single one is ""
Schedules = Mapping[str, LRScheduler]


@dataclass(frozen=True)
class Objective:
    """Loss that a training step minimizes, with its optimizers and schedules.

    A GAN has two objectives, which are minimized one after the other.
    """

    role: str  # `loss`, or the name of the training step
    function: Callable[..., Any] | None  # the training step; None: the loss is computed from the model's output
    asks: frozenset[str]  # loop values among its arguments
    optimizers: Optimizers
    schedules: Sequence[LRScheduler]
    clipped: Sequence[nn.Parameter]  # parameters whose gradients `--clip` limits together
    others: Sequence[nn.Parameter]  # parameters of the model that it does not train
    scaler: GradScaler
    gradients: Gradients
    finite: Finite

    @property
    def label(self) -> str:
        """Return the name of the objective's loss in reports."""
        return label_of(self.role)

    @contextmanager
    def trained_alone(self) -> Iterator[None]:
        """Freeze, in the `with` block, the parameters of the model that this objective does not train."""
        paused = [each for each in self.others if each.requires_grad]
        for each in paused:
            each.requires_grad_(False)
        try:
            yield
        finally:
            for each in paused:
                each.requires_grad_(True)

    def step_schedules(self) -> None:
        """Advance the schedules, except ReduceLROnPlateau, which a validation's metric advances."""
        for schedule in self.schedules:
            if not isinstance(schedule, ReduceLROnPlateau):
                schedule.step()


def label_of(role: str) -> str:
    """Return the name in reports of the loss of a function or training step: `loss`, or `gen_loss` for `step_gen`."""
    key = role.removeprefix("step_")
    return "loss" if key in ("loss", "step") else f"{key}_loss"


def assigned(steps: Sequence[str], optimizers: Optimizers) -> dict[str, Optimizers]:
    """Return, for each of the user's training steps, the optimizers that it uses.

    Step `step_gen` gets the optimizer `gen`; `step` gets those that no other step gets. Without training steps, all
    optimizers belong to `loss`. Raises InvalidDefinition for a step without an optimizer, and for an optimizer without
    a step.

    Examples
    --------
    >>> import torch
    >>> sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    >>> {role: list(own) for role, own in assigned(["step_disc", "step_gen"], {"gen": sgd, "disc": sgd}).items()}
    {'step_disc': ['disc'], 'step_gen': ['gen']}
    """
    if not steps:
        return {"loss": optimizers}
    keys = {step: step.removeprefix("step_") for step in steps if step != "step"}
    if len(steps) == 1 and "" in optimizers:
        return {steps[0]: optimizers}
    there_are = f"optimizer() returns {', '.join(optimizers) if '' not in optimizers else 'one optimizer'}"
    for step, key in keys.items():
        if key not in optimizers:
            raise InvalidDefinition(f"{step}() trains {key}, and {there_are}: return a dict with {key} in it")
    left = {name: each for name, each in optimizers.items() if name not in keys.values()}
    if left and "step" not in steps:
        name = next(iter(left))
        raise InvalidDefinition(f"{there_are}, and no step trains {name}: write def step_{name}(...)")
    if "step" in steps and not left:
        raise InvalidDefinition(f"{there_are}, and each has a step of its own: none is left for step()")
    return {step: {keys[step]: optimizers[keys[step]]} if step in keys else left for step in steps}


def build_objectives(
    functions: Functions,
    model: nn.Module,
    steps: Mapping[str, Callable[..., Any]],
    optimizers: Optimizers,
    schedules: Schedules,
    *,
    scaler: Callable[[], GradScaler],
    gradients: Callable[[Parameters, GradScaler, str], Gradients],
    finite: Callable[[str], Finite],
) -> list[Objective]:
    """Return the objectives of a training, in the order in which their functions stand in the source code.

    `steps` are the user's training steps by name, empty if there is only `loss`. A single objective trains all
    parameters of the model; each of several trains the parameters of its optimizers. The functions `scaler`,
    `gradients` and `finite` create an objective's gradient scaler, gradient sum, and check for finite losses.
    """
    own = assigned(tuple(steps), optimizers)
    built = []
    for role, mine in own.items():
        parameters = {name: each for name, each in model.named_parameters() if len(own) == 1 or _has(mine, each)}
        known = {id(each) for each in parameters.values()}
        scales = scaler()
        built.append(
            Objective(
                role=role,
                function=steps.get(role),
                asks=functions.asked(role),
                optimizers=mine,
                schedules=[each for each in schedules.values() if any(each.optimizer is its for its in mine.values())],
                clipped=list(parameters.values()),
                others=[each for each in model.parameters() if id(each) not in known],
                scaler=scales,
                gradients=gradients(parameters, scales, role if len(own) > 1 else ""),
                finite=finite(role),
            )
        )
    return built


def _has(optimizers: Optimizers, parameter: nn.Parameter) -> bool:
    groups = (group for optimizer in optimizers.values() for group in optimizer.param_groups)
    return any(each is parameter for group in groups for each in group["params"])


def named(part: str, name: str) -> str:
    """Return the name of a checkpoint part, such as `optimizer`, or `optimizer.gen` for the optimizer `gen`.

    `part` is the first word; `name` is the object's own name, "" if there is only one.
    """
    return f"{part}.{name}" if name else part
