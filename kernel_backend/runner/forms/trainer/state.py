"""Save and restore the state of a Trainer and its callbacks, besides model, optimizer and schedule."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import textwrap
from collections import deque
from collections.abc import Container, Mapping
from typing import Any

from torch import nn

from kernel_backend.checkpoints.writer import flatten
from kernel_backend.errors import DaylightError
from kernel_backend.runner.determinism.digests import tensor_digest
from kernel_backend.runner.external_loop.parts import part_of
from kernel_backend.runner.metrics.join import mapped
from kernel_backend.snapshots.trainers import TrainedTrainer

_HELD = (
    "epoch", "global_step", "total_flos", "log_history", "best_metric", "best_global_step", "num_input_tokens_seen",
)  # fmt: skip
_SUMS = ("_tr_loss", "_total_loss_scalar", "_globalstep_last_logged", "current_flos")


class _HeldState:
    """Checkpoint part whose state no longer changes after `end`, which is called just before `train()` returns.

    At its end, `train()` adds to the sums of losses, logs a summary and calls `on_train_end`. A training that is
    resumed from its last checkpoint does this anew, so that the checkpoint must not contain the effects.
    """

    def __init__(self) -> None:
        self._ended: dict[str, Any] | None = None

    def end(self) -> None:
        """Copy the current state: from now on `state_dict` returns this copy."""
        self._ended = mapped(lambda each: each.detach().clone(), self._state())

    def state_dict(self) -> dict[str, Any]:
        """Return the current state or, after `end`, the state at that call."""
        return self._state() if self._ended is None else self._ended

    def _state(self) -> dict[str, Any]:
        raise NotImplementedError


class Progress(_HeldState):
    """Checkpoint part for a Trainer's counters, its history of logs, and its sums of losses since the last log."""

    def __init__(self, trainer: Any) -> None:
        super().__init__()
        self._trainer = trainer

    def _state(self) -> dict[str, Any]:
        trainer = self._trainer
        state = {name: value for name, value in dataclasses.asdict(trainer.state).items() if name in _HELD}
        sums = {name: getattr(trainer, name) for name in _SUMS}
        return {"state": part_of("", state).state_dict(), "sums": part_of("", sums).state_dict()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore the Trainer's state and sums."""
        for name, owner in (("state", self._trainer.state), ("sums", self._trainer)):
            found: dict[str, Any] = {}
            part_of("", found).load_state_dict(saved[name])
            for key, value in found.items():
                setattr(owner, key, value.to(self._trainer.args.device) if key == "_tr_loss" else value)


class TrainedHuggingFace(TrainedTrainer):
    """State of a Hugging Face Trainer; `state` is its `TrainerState`."""

    def put_into(self, trainer: Any) -> None:
        """Give the model and the log to a new Trainer, which then evaluates, predicts and saves."""
        trainer.model, trainer.state = self.model, self.state
        trainer.model_wrapped = trainer.accelerator.prepare_model(self.model)  # on its device, as after train()


class Attributes(_HeldState):
    """Checkpoint part for attributes of some objects, such as callbacks: those whose values a checkpoint can hold."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        """Set up the part for `objects`, by the names under which their attributes are saved."""
        super().__init__()
        self._objects = objects
        self._loaded: dict[str, Any] = {}

    def _state(self) -> dict[str, Any]:
        return {name: part_of("", self._plain(each)).state_dict() for name, each in self._objects.items()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore the attributes of objects that were saved; objects that no longer exist are ignored."""
        self._loaded = saved
        self.apply()

    def apply(self) -> None:
        """Set the attributes to the loaded state, if there is one; it may be called several times."""
        for name, each in self._objects.items():
            if name in self._loaded:
                found: dict[str, Any] = {}
                part_of("", found).load_state_dict(self._loaded[name])
                for key, value in found.items():
                    vars(each)[key] = _refilled(vars(each).get(key), value)

    def _plain(self, obj: Any) -> dict[str, Any]:
        return {name: value for name, (value, _) in _held(obj).items()}


class OwnAttributes(Attributes):
    """Checkpoint part for a Trainer's attributes that a subclass of Trainer has added and changes in training.

    Attributes that keep their initial value are not saved, so that a trial with other hyperparameters keeps its own.
    """

    def __init__(self, trainer: Any, package: str = "transformers") -> None:
        """Record the attributes' initial values, except attributes that classes of the library `package` assign."""
        super().__init__({"trainer": trainer})
        library = [each for each in type(trainer).__mro__ if each.__module__.partition(".")[0] == package]
        self._ignored = frozenset[str]().union(*map(_assigned, library))
        self._first = {name: digest for name, (_, digest) in _held(trainer, self._ignored).items()}

    def of_library(self) -> list[Any]:
        """Return the values of the library's attributes, without its functions and modules, which call users' code."""
        held = vars(self._objects["trainer"])
        return [held[name] for name in self._ignored & held.keys() if not callable(held[name])]

    def _plain(self, obj: Any) -> dict[str, Any]:
        own = _held(obj, self._ignored)
        return {name: value for name, (value, digest) in own.items() if self._first.get(name) != digest}


def _held(obj: Any, ignored: Container[str] = ()) -> dict[str, tuple[Any, str]]:
    """Return, by name, each attribute of `obj` that a checkpoint can hold, as its value and its digest.

    Attributes named in `ignored` are left out.
    """
    found = {}
    for name, value in vars(obj).items():
        if name in ignored or isinstance(value, nn.Parameter):  # an optimizer may train it: it is restored in place
            continue
        try:
            tree, tensors = flatten(part_of("", {name: value}).state_dict())
        except (DaylightError, TypeError, ValueError):
            continue
        digests = {key: tensor_digest(tensor) for key, tensor in tensors.items()}
        found[name] = value, json.dumps([tree, digests], default=str)
    return found


@functools.cache
def _assigned(kind: type) -> frozenset[str]:
    """Return the names of the attributes that the methods of a class assign to `self`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    stored = [each for each in ast.walk(tree) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)]
    return frozenset(each.attr for each in stored if isinstance(each.value, ast.Name) and each.value.id == "self")


def _refilled(now: Any, saved: Any) -> Any:
    """Return the value to set for an attribute: `now`, filled with the items of `saved`, if it is a dict or deque.

    So the object, for example a defaultdict, stays the same. For any other value, return `saved`.
    """
    if isinstance(now, dict) and isinstance(saved, dict):
        items = {key: _refilled(now.get(key), value) for key, value in saved.items()}
        now.clear()
        now.update(items)
        return now
    if isinstance(now, deque) and isinstance(saved, list):
        now.clear()
        now.extend(saved)
        return now
    return saved
