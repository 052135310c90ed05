"""Save and restore a Keras model, its optimizers, metrics, random seeds and callbacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import torch
from torch import Tensor, nn

from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.determinism.reachability import held_by
from kernel_backend.runner.external_loop.parts import part_of
from kernel_backend.runner.forms.keras.values import on_torch, read, write

_SEEDS = 2**32


class Variables(nn.Module):
    """Keras variables as a torch module: trainable ones become parameters, others buffers, which may differ by rank.

    Each name begins with the variable's index in the model, as Keras numbers names differently in each process. If
    Keras does not run on torch, the module holds copies, which are read again for each `state_dict`.
    """

    def __init__(self, variables: Iterable[Any], trained: frozenset[int] = frozenset()) -> None:
        """Register these variables; `trained` has the `id()` of those that become parameters."""
        super().__init__()
        self._variables: dict[str, Any] = {}
        for place, each in enumerate(variables):
            name = f"{place:04}/{each.path.replace('.', '_')}"
            self._variables[name] = each
            if id(each) in trained:
                self.register_parameter(name, each.value if on_torch() else nn.Parameter(read(each), each.trainable))
            else:
                self.register_buffer(name, read(each))
        if not on_torch():
            self.register_state_dict_pre_hook(lambda *_: self.refresh())  # type: ignore[no-untyped-call]
            self.register_load_state_dict_post_hook(lambda *_: self.store())  # type: ignore[no-untyped-call]

    def named_buffers(self, *args: Any, **options: Any) -> Iterator[tuple[str, Tensor]]:
        """Yield the buffers by name, with the values that their variables have now."""
        self._read(self._buffers)
        return super().named_buffers(*args, **options)

    def refresh(self) -> None:
        """Read the values of all variables again if this module has copies of them (Keras does not run on torch)."""
        self._read({**self._parameters, **self._buffers})

    def store(self) -> None:
        """Write the values of this module to its variables, if it has copies of them."""
        self._write({**self._parameters, **self._buffers})

    def store_buffers(self) -> None:
        """Write the values of the buffers to their variables, if they are copies of them."""
        self._write(self._buffers)

    def _read(self, copies: Mapping[str, Tensor | None]) -> None:
        if not on_torch():
            with torch.no_grad():
                for name, own in copies.items():
                    if own is not None:
                        own.copy_(read(self._variables[name]))

    def _write(self, copies: Mapping[str, Tensor | None]) -> None:
        if not on_torch():
            for name, own in copies.items():
                if own is not None:
                    write(self._variables[name], own.detach())


def model_variables(model: Any) -> Variables:
    """Return the weights of a model, in the order of `model.weights`."""
    return Variables(model.weights, frozenset(id(each) for each in _trainable(model)))


def other_variables(model: Any) -> Variables:
    """Return the variables of a model, other than weights, that training changes: metrics' states and random seeds."""
    own = {id(each) for each in model.weights}
    found = {id(each): each for each in [*model.variables, *model.metrics_variables, *_seeds(model)]}
    return Variables(each for key, each in found.items() if key not in own)


def auxiliary_variables(model: Any, called: Mapping[str, Any]) -> list[Any]:
    """Return the variables reached from `called` that are not the model's, such as those of a second network."""
    known = {id(each) for each in [*model.variables, *model.metrics_variables, *_seeds(model)]}
    known |= {id(each) for optimizer in optimizers(model).values() for each in optimizer.variables}
    reached = [obj for _, obj in held_by(called)]
    for each in reached:
        if isinstance(each, keras.Model) and each.built and each.compiled and each.optimizer is not None:
            each.optimizer.build(each.trainable_variables)
    return [each for _, each in held_by(called) if isinstance(each, keras.Variable) and id(each) not in known]


def unbuilt_auxiliaries(called: Mapping[str, Any]) -> list[str]:
    """Return the names of layers and optimizers reached from `called` that make their variables in a step only."""
    makers = [
        each
        for _, each in held_by(called)
        if isinstance(each, keras.Optimizer)
        or (isinstance(each, keras.Layer) and type(each).build is not keras.Layer.build)
    ]
    return [each.name for each in makers if not each.built]


def differ(model: Any, seed: int, rank: int) -> None:
    """Reseed the model's random layers, such as dropout, by `seed` and `rank`, so that ranks draw different numbers."""
    for place, each in enumerate(_seeds(model)):
        first, second = read(each).tolist()
        each.assign([(first + seeds.mix(seed, "keras", place, rank)) % _SEEDS, second])


def _trainable(model: Any) -> Iterable[Any]:
    """Yield a model's variables that were created as trainable, also those that were frozen later."""
    for layer in model._flatten_layers(include_self=True, recursive=True):
        yield from layer._trainable_variables


def _seeds(model: Any) -> list[Any]:
    generators = [
        each
        for layer in model._flatten_layers(include_self=True, recursive=True)
        for each in getattr(layer, "_seed_generators", ())
    ]
    shared = keras.src.backend.common.global_state.get_global_attribute("global_seed_generator")
    return list({id(each.state): each.state for each in [*generators, *([shared] if shared else [])]}.values())


class KerasOptimizer:
    """Checkpoint part for the variables of a Keras optimizer: moments, iterations, learning rate."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        """Return the values of the optimizer's variables."""
        return {str(place): read(each) for place, each in enumerate(self._optimizer.variables)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the optimizer's variables to those that `state_dict` returned."""
        for place, each in enumerate(self._optimizer.variables):
            write(each, state[str(place)])

    def take_over(self, state: dict[str, Any]) -> None:
        """Restore a state that was saved with other hyperparameters, but keep the learning rate of this trial.

        A state with another number of variables is ignored.
        """
        rate: Any = getattr(self._optimizer, "_learning_rate", None)
        before = read(rate).clone() if hasattr(rate, "assign") else None
        if len(state) == len(self._optimizer.variables):
            self.load_state_dict(state)
        if before is not None:
            write(rate, before)


def optimizers(model: Any) -> dict[str, Any]:
    """Return a model's optimizers by name: the one it was compiled with, and those in attributes of a user's class."""
    found = {"optimizer": model.optimizer} if model.optimizer is not None else {}
    known = {id(each) for each in found.values()}
    for name, each in vars(model).items():
        if isinstance(each, keras.optimizers.Optimizer) and id(each) not in known:
            known.add(id(each))
            found[f"optimizer.{name}"] = each
    return found


class CallbackState:
    """Checkpoint part for the user's Keras callbacks: it holds those of their attributes that are plain data."""

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._callbacks = [each for each in callbacks if not isinstance(each, keras.callbacks.ProgbarLogger)]

    def state_dict(self) -> dict[str, Any]:
        """Return, for each callback, the attributes that are numbers, strings, arrays or containers of these."""
        return {
            f"{place} {type(each).__name__}": part_of("", _plain(each)).state_dict()
            for place, each in enumerate(self._callbacks)
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the saved attributes of the callbacks; those of callbacks that no longer exist are ignored."""
        for place, each in enumerate(self._callbacks):
            saved = state.get(f"{place} {type(each).__name__}")
            if saved is not None:
                found: dict[str, Any] = {}
                part_of("", found).load_state_dict(saved)
                vars(each).update(_attributes(each, found))


_FRAMEWORK = frozenset({"_model", "model", "params", "validation_data"})
_OF_THE_FILE = frozenset({"append", "append_header"})  # of a CSVLogger, whose file differs in each attempt
# The comparison function, which Keras chooses only at the end of a callback's first epoch. If lower is better, Keras
# also changes the sign of `min_delta`. Both are saved, as choosing again would change the sign back.
_COMPARISON = "monitor_op"
_COMPARISONS = {"less": keras.ops.less, "greater": keras.ops.greater}
_NAMED = "$comparison"


def _plain(callback: Any) -> dict[str, Any]:
    left_out = _FRAMEWORK | _OF_THE_FILE if isinstance(callback, keras.callbacks.CSVLogger) else _FRAMEWORK
    found = {name: each for name, each in vars(callback).items() if name not in left_out and _holdable(each)}
    chosen = vars(callback).get(_COMPARISON)
    named = [{_NAMED: name} for name, function in _COMPARISONS.items() if function is chosen]
    return found | ({_COMPARISON: named[0]} if named else {})


def _attributes(callback: Any, saved: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes to restore in a callback, from its `saved` ones, in which functions are stored as names.

    For example, EarlyStopping keeps in `monitor_op` the function that compares two values of its metric.
    """
    found = dict(saved)
    chosen = found.get(_COMPARISON)
    if isinstance(chosen, dict) and _NAMED in chosen:
        found[_COMPARISON] = _COMPARISONS[chosen[_NAMED]]
    elif vars(callback).get(_COMPARISON, "none") is None and isinstance(delta := found.get("min_delta"), int | float):
        found["min_delta"] = abs(delta)  # the checkpoint holds no comparison: the callback will choose again
    return found


def _holdable(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _holdable(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return all(map(_holdable, value))
    plain = bool | int | float | str | None | np.ndarray | np.generic | Tensor
    return isinstance(value, plain) and not (isinstance(value, np.ndarray) and value.dtype.hasobject)
