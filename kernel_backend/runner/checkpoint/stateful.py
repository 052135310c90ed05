"""The parts of a training that have a state, and how it goes into a checkpoint and comes back to the last bit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau


class Stateful(Protocol):
    """A part of a training that a checkpoint holds."""

    def state_dict(self) -> dict[str, Any]:
        """Its state: tensors, numbers and texts."""

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Be in this state again."""


class Model:
    """A model as a part of a checkpoint."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers by name."""
        return dict(self._model.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Overwrite them; buffers that the first forward pass makes are there, too."""
        lay_out_buffers(self._model, state)
        self._model.load_state_dict(state)


def lay_out_buffers(model: nn.Module, like: Mapping[str, Tensor]) -> None:
    """Have memory for the buffers among `like` of which `model` has only the names until its first forward pass."""
    for name, tensor in like.items():
        path, _, leaf = name.rpartition(".")
        module = model.get_submodule(path)
        if leaf in module._buffers and module._buffers[leaf] is None:
            device = next((each.device for each in model.parameters()), tensor.device)
            module._buffers[leaf] = torch.empty_like(tensor, device=device)


class Optimizer:
    """An optimizer as a part of a checkpoint."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        """The state of every parameter, and the groups."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Be as it was saved: torch's own loading casts float32 states of half-precision parameters.

        It also makes states contiguous, and fused steps walk through memory side by side with the parameter.
        """
        self._optimizer.load_state_dict(state)
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        indices = [index for group in state["param_groups"] for index in group["params"]]
        for parameter, index in zip(parameters, indices, strict=True):
            for key, saved in state["state"].get(index, {}).items():
                if isinstance(saved, Tensor) and key != "step":
                    self._optimizer.state[parameter][key] = _beside(parameter, saved)

    def take_over(self, state: dict[str, Any]) -> None:
        """Go on with the state of every parameter, but with these groups' own options: learning rate, decay, momentum.

        An optimizer of another kind has no use for that state, and begins with none.
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


# Options by which an optimizer keeps more of every parameter once they are not zero.
_SHAPING = ("amsgrad", "centered", "momentum")
# Options that schedules put into an optimizer's groups.
_OF_SCHEDULES = {"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr"}


class Schedule:
    """A schedule of the learning rate as a part of a checkpoint."""

    def __init__(self, schedule: LRScheduler) -> None:
        self._schedule = schedule

    def state_dict(self) -> dict[str, Any]:
        """All that it keeps but the optimizer, and functions."""
        return self._schedule.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Be as it was saved."""
        self._schedule.load_state_dict(state)

    def take_over(self, state: dict[str, Any]) -> None:
        """Come to the same place with hyperparameters of its own, as if it had come there by itself.

        One that goes by a metric knows what was best, and begins with the learning rate that it was given.
        """
        if isinstance(self._schedule, ReduceLROnPlateau):
            self._schedule.load_state_dict({name: state[name] for name in _HEARD if name in state})
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the optimizer takes no steps meanwhile is as it should be
            for _ in range(_taken(state)):
                self._schedule.step()


_HEARD = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")  # what a plateau remembers of its metric


def _taken(state: Mapping[str, Any]) -> int:
    """How many steps a schedule has taken; one that chains others counts none itself."""
    own: int | None = state.get("last_epoch")
    return own if own is not None else max(map(_taken, state["_schedulers"]))


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def _beside(parameter: Tensor, saved: Tensor) -> Tensor:
    if saved.shape != parameter.shape:
        return saved.to(parameter.device)
    return torch.empty_like(parameter, dtype=saved.dtype).copy_(saved)
