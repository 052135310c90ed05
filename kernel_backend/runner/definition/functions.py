"""The functions form: roles of a definition, called with what their arguments name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.record import Value
from kernel_backend.runner.definition.load import Loaded
from kernel_backend.runner.determinism import seeds

_OF_A_STEP = frozenset({"output", "target", "input", "batch", "epoch"})


class Functions:
    """The functions of a definition. What one returns is kept: a shared value is made once in a process."""

    def __init__(self, loaded: Loaded, params: Mapping[str, Value], seed: int, constants: Mapping[str, Any]) -> None:
        """`constants` are the loop values that never change: device, rank, world, epochs, and later `steps`.

        Raises InvalidDefinition for a hyperparameter without a value.
        """
        self._module, self._definition = loaded.module, loaded.definition
        self._seed = seed
        self._constants = dict(constants)
        self._results: dict[str, Any] = {}
        self.params = self._definition.bind(params)

    def know(self, **constants: Any) -> None:
        """Add loop values that are the same from now on."""
        self._constants |= constants

    def has(self, role: str) -> bool:
        """Whether the definition has this role."""
        return role in self._definition.roles

    def needs_model(self, role: str) -> bool:
        """Whether a role asks for the model, or for a function that does."""
        return any(function.name == "model" for function in self._definition.needs(role))

    @property
    def asks_rank(self) -> bool:
        """Whether any function asks for its rank, or for how many there are."""
        functions = self._definition.functions.values()
        return any(each.name in ("rank", "world") for function in functions for each in function.parameters)

    def model(self) -> nn.Module:
        """The model; raises InvalidDefinition where the role returns anything but one module."""
        model = self.result("model")
        if isinstance(model, dict):
            raise InvalidDefinition(
                f"model() returned several models ({', '.join(map(str, model))}): definitions with more than one "
                "come with the step_<key> roles of a later version; return one nn.Module that holds them"
            )
        if not isinstance(model, nn.Module):
            raise InvalidDefinition(f"model() returned {_a(model)}; it must return an nn.Module")
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer over the model's parameters; AdamW where the definition has none."""
        params, named = list(model.parameters()), list(model.named_parameters())
        if not self.has("optimizer"):
            lr = self.params.get("lr", 1e-3)
            assert isinstance(lr, int | float)
            return torch.optim.AdamW(params, lr=lr)
        made = self.prepared("optimizer", frozenset({"params", "named_params"}))
        optimizer = made(params=params, named_params=named)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InvalidDefinition(f"optimizer() returned {_a(optimizer)}; it must return a torch.optim.Optimizer")
        _must_be_the_models(optimizer, params)
        return optimizer

    def schedule(self, optimizer: torch.optim.Optimizer) -> LRScheduler | None:
        """What changes the optimizer's learning rate; None where the definition has no schedule."""
        if not self.has("schedule"):
            return None
        made = self.prepared("schedule", frozenset({"optimizer"}))(optimizer=optimizer)
        if not isinstance(made, LRScheduler):
            raise InvalidDefinition(f"schedule() returned {_a(made)}; it must return a torch.optim.lr_scheduler")
        if isinstance(made, ReduceLROnPlateau) and not self.has("validation_data"):
            raise InvalidDefinition(
                "schedule() returned a ReduceLROnPlateau, which goes by the validation (--metric), and there is "
                "no validation_data: add it, or take a schedule that goes by steps"
            )
        return made

    def step_function(self, role: str) -> Callable[..., Any]:
        """`loss` or `metrics`, to be called with `output target input batch epoch` by name."""
        return self.prepared(role, _OF_A_STEP)

    def asked(self, role: str) -> frozenset[str]:
        """Which of the loop values of a step `loss` or `metrics` takes."""
        parameters = self._definition.functions[role].parameters
        return _OF_A_STEP & {each.value_of for each in parameters if each.kind == "loop"}

    def result(self, name: str) -> Any:
        """What a role or a shared function returns; it is called once."""
        if name not in self._results:
            self._results[name] = self.prepared(name, frozenset())()
        return self._results[name]

    def prepared(self, name: str, given: frozenset[str]) -> Callable[..., Any]:
        """The function with everything bound but the loop values in `given`, of which it takes those it names.

        Hyperparameters and other functions' results are found now, so that a call costs next to nothing.
        Raises InvalidDefinition for a loop value that this function cannot have.
        """
        function = self._definition.functions[name]
        fixed = function.hyperparameters(self.params)
        wanted: dict[str, str] = {}
        for parameter in function.parameters:
            value = parameter.value_of
            if parameter.kind == "function":
                fixed[parameter.name] = self.result(value)
            elif value in given:
                wanted[parameter.name] = value
            elif parameter.kind == "loop":
                fixed[parameter.name] = self._constant(name, value, parameter.line, given)
        called = getattr(self._module, function.attribute)
        # Its own draws, whatever was called before it.
        seeds.reseed(seeds.mix(self._seed, "init", name))
        return lambda **values: called(**fixed, **{each: values[value] for each, value in wanted.items()})

    def _constant(self, function: str, name: str, line: int, given: frozenset[str]) -> Any:
        if name not in self._constants:
            can = " ".join(sorted(given | set(self._constants)))
            raise InvalidDefinition(f"{function} (line {line}) asks for {name}, and can have: {can}", line=line)
        return self._constants[name]


class Inputs(NamedTuple):
    """A batch, taken apart for the model."""

    positional: tuple[Any, ...]
    named: dict[str, Any]
    target: Any

    @property
    def value(self) -> Any:
        """The loop value `input`."""
        if self.named:
            return self.named
        return self.positional[0] if len(self.positional) == 1 else self.positional


class BatchRule:
    """How a batch becomes inputs and target.

    A tuple: all but the last are inputs, the last is the target. A dict: inputs by the names of `forward`'s
    arguments, the target is `labels` or `target`.
    """

    def __init__(self, model: nn.Module) -> None:
        self._names = frozenset(inspect.signature(model.forward).parameters)

    def split(self, batch: Any) -> Inputs:
        """The parts of a batch; raises InvalidDefinition where the rule does not fit it."""
        if isinstance(batch, list | tuple) and len(batch) > 1:
            return Inputs(tuple(batch[:-1]), {}, batch[-1])
        if isinstance(batch, Mapping):
            named = {name: batch[name] for name in batch if name in self._names}
            if named:
                return Inputs((), named, batch.get("labels", batch.get("target")))
            raise InvalidDefinition(
                f"a batch has {', '.join(map(str, batch))}, and the model's forward takes "
                f"{', '.join(sorted(self._names))}: give one of them the other's name"
            )
        raise InvalidDefinition(
            f"a sample of the data is {_a(batch)}: make it (input, ..., target), or a dict with labels or target"
        )


def loss_and_logged(result: Any) -> tuple[Tensor, Mapping[str, Any]]:
    """What `loss` returned: a scalar, or a scalar and values to log; raises InvalidDefinition for anything else."""
    loss, logged = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not isinstance(logged, Mapping):
        raise InvalidDefinition(
            f"loss() returned {_a(result)}; it must return a scalar tensor, or (scalar, dict of values to log)"
        )
    return loss.reshape(()), logged


def _must_be_the_models(optimizer: torch.optim.Optimizer, params: list[nn.Parameter]) -> None:
    known = {id(each) for each in params}
    strange = [each for group in optimizer.param_groups for each in group["params"] if id(each) not in known]
    if strange:
        shapes = ", ".join(str(tuple(each.shape)) for each in strange[:3])
        raise InvalidDefinition(
            f"optimizer() has parameters that are not the model's (of shape {shapes}): make the module that has them a "
            "part of what model() returns, so that they are summed over all ranks and saved"
        )


def _a(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"
