"""Wrap model, optimizer and schedule as checkpoint parts that restore bit for bit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from kernel_backend.runner.checkpoint.frozen import untrained


class Stateful(Protocol):
    """Part of a training that is saved in a checkpoint and restored from it."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state: tensors, numbers and strings."""

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Restore a state that `state_dict` returned."""


@runtime_checkable
class TakesOver(Protocol):
    """Checkpoint part that can be restored in a trial with other hyperparameters, such as another learning rate."""

    def take_over(self, state: dict[str, Any]) -> None:
        """Restore the state, but keep the options of this trial, such as the learning rate."""


@runtime_checkable
class HoldsModules(Protocol):
    """Checkpoint part that holds several modules of a program."""

    def found(self) -> Mapping[str, nn.Module]:
        """Return the modules by the names of the program's variables."""


class Model:
    """Checkpoint part for a model's parameters and buffers."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    @property
    def module(self) -> nn.Module:
        """Return the model itself."""
        return self._model

    def state_dict(self) -> dict[str, Any]:
        """Return parameters and buffers by name."""
        return dict(self._model.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Overwrite parameters and buffers, including buffers that only the first forward pass would create."""
        lay_out_buffers(self._model, state)
        self._model.load_state_dict(state)

    def frozen(self) -> set[str]:
        """Return the names of parameters and buffers that are not trained."""
        return untrained(self._model)

    def load_matching(self, state: dict[str, Any]) -> list[str]:
        """Overwrite the model's tensors that `state` has with the same name and shape.

        Return the names of the model's tensors that were not overwritten.
        """
        lay_out_buffers(
            self._model, {name: tensor for name, tensor in state.items() if name in self._model.state_dict()}
        )
        own = self._model.state_dict()
        matching = {name: tensor for name, tensor in state.items() if name in own and own[name].shape == tensor.shape}
        self.load_state_dict({**own, **matching})
        return [name for name in own if name not in matching]


def lay_out_buffers(model: nn.Module, like: Mapping[str, Tensor]) -> None:
    """Allocate the buffers in `like` that `model` declares as None before its first forward pass.

    `like` has tensors by name, from whose shapes and types the buffers are created.
    """
    for name, tensor in like.items():
        path, _, leaf = name.rpartition(".")
        module = model.get_submodule(path)
        if leaf in module._buffers and module._buffers[leaf] is None:
            device = next((each.device for each in model.parameters()), tensor.device)
            module._buffers[leaf] = torch.empty_like(tensor, device=device)


class Optimizer:
    """Checkpoint part for an optimizer; it restores bit for bit."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    @property
    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the optimizer's parameter groups, each with its parameters and options."""
        return self._optimizer.param_groups

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state of every parameter, and the options of the parameter groups."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state exactly as saved, without the changes that torch's own `load_state_dict` makes.

        Torch casts float32 states of half-precision parameters. It also makes states contiguous, although fused steps
        need the memory layout of the parameter.
        """
        self._optimizer.load_state_dict(state)
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        indices = [index for group in state["param_groups"] for index in group["params"]]
        for parameter, index in zip(parameters, indices, strict=True):
            for key, saved in state["state"].get(index, {}).items():
                if isinstance(saved, Tensor) and key != "step":
                    self._optimizer.state[parameter][key] = self._laid_out(parameter, saved)

    def _laid_out(self, parameter: Tensor, saved: Tensor) -> Tensor:
        """Return a saved state tensor in the memory layout of its parameter, on the parameter's device."""
        if saved.shape != parameter.shape:
            return saved.to(parameter.device)
        return torch.empty_like(parameter, dtype=saved.dtype).copy_(saved)

    def take_over(self, state: dict[str, Any]) -> None:
        """Restore the state of each parameter, but keep this trial's options: learning rate, decay, momentum.

        If the saved state belongs to another kind of optimizer, restore nothing.
        """
        own = [_options(group) for group in self._optimizer.param_groups]
        if not self._fits(own, state["param_groups"]):
            return
        self.load_state_dict(state)
        for group, options in zip(self._optimizer.param_groups, own, strict=True):
            parameters = group["params"]
            group.clear()
            group.update(params=parameters, **options)

    def _fits(self, own: list[dict[str, Any]], saved: list[dict[str, Any]]) -> bool:
        sizes = [len(group["params"]) for group in self._optimizer.param_groups]
        if sizes != [len(group["params"]) for group in saved]:
            return False
        both = list(zip(own, map(_options, saved), strict=True))
        more = any(options.get(name) and not before.get(name) for options, before in both for name in _SHAPING)
        return not more and all(
            options.keys() - _OF_SCHEDULES == before.keys() - _OF_SCHEDULES for options, before in both
        )


# Options that add state to every parameter if they are not zero.
_SHAPING = ("amsgrad", "centered", "momentum")
# Options that schedules put into an optimizer's groups.
_OF_SCHEDULES = {"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr"}


class Schedule:
    """Checkpoint part for a learning rate schedule."""

    def __init__(self, schedule: LRScheduler) -> None:
        self._schedule = schedule

    def state_dict(self) -> dict[str, Any]:
        """Return the schedule's state, without its optimizer and functions."""
        return self._schedule.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a schedule's state that `state_dict` returned."""
        self._schedule.load_state_dict(state)

    def take_over(self, state: dict[str, Any]) -> None:
        """Advance this trial's schedule to the saved step, with this trial's hyperparameters.

        A ReduceLROnPlateau gets the saved history of its metric instead, and keeps its configured learning rate.
        """
        if isinstance(self._schedule, ReduceLROnPlateau):
            self._schedule.load_state_dict({name: state[name] for name in _HEARD if name in state})
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that the optimizer takes no steps meanwhile, as intended
            for _ in range(_taken(state)):
                self._schedule.step()


_HEARD = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")  # a plateau's history of the metric


def _taken(state: Mapping[str, Any]) -> int:
    """Return the number of steps that a learning rate schedule had taken when `state` was saved.

    For chained schedules it is the largest of their numbers.
    """
    own: int | None = state.get("last_epoch")
    return own if own is not None else max(map(_taken, state["_schedulers"]))


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
