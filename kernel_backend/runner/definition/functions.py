"""Call the user's functions (`model`, `loss`, `train_data` ...) with the values that their parameters name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from kernel_backend.definition.aliases import takes_target_first
from kernel_backend.definition.contract import Function
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.record import Value
from kernel_backend.runner.definition.load import Loaded
from kernel_backend.runner.definition.metric_protocol import is_metric
from kernel_backend.runner.determinism import seeds

_OF_A_STEP = frozenset({"output", "target", "input", "batch", "epoch"})
_OF_A_TRAINING_STEP = frozenset({"target", "input", "batch", "epoch", "index"})
_OF_AUGMENT = frozenset({"batch", "epoch", "index"})


class Functions:
    """Caller of the functions that the user has defined, such as `model` and `loss`.

    Results such as the model are cached, so that one process has one object of each.
    """

    def __init__(self, loaded: Loaded, params: Mapping[str, Value], seed: int, constants: Mapping[str, Any]) -> None:
        """Set up the user's functions in `loaded`, the imported definition, with hyperparameter values `params`.

        `constants` are the values that functions may take as arguments and that stay the same during training: device,
        rank, world, epochs, and later `steps`. `seed` is the experiment's. Raises InvalidDefinition if a hyperparameter
        has no value.
        """
        self._module, self._definition = loaded.module, loaded.definition
        self._seed = seed
        self._constants = dict(constants)
        self._results: dict[str, Any] = {}
        self.params = self._definition.bind(params)

    def know(self, **constants: Any) -> None:
        """Make further values available as arguments of the user's functions.

        They are known only after some functions were called, such as `steps`, which depends on the data.
        """
        self._constants |= constants

    def has(self, role: str) -> bool:
        """Return True if the user has defined a function or a value for this role, such as `optimizer`."""
        return role in self._definition.roles

    def needs_model(self, role: str) -> bool:
        """Return True if the user's function for `role` takes the model, directly or through the results of others."""
        return any(function.name == "model" for function in self._definition.needs(role))

    @property
    def asks_rank(self) -> bool:
        """Return True if any function of the user takes `rank` or `world` (the number of ranks) as an argument."""
        functions = self._definition.functions.values()
        return any(each.name in ("rank", "world") for function in functions for each in function.parameters)

    @property
    def steps(self) -> tuple[str, ...]:
        """Return the names of the user's training step functions, in source order."""
        return self._definition.steps

    def model(self) -> nn.Module:
        """Return the model; several models become an `nn.ModuleDict`. Raise InvalidDefinition for any other result."""
        made = self.result("model")
        model = module_of(made)
        if model is None:
            must = "be" if self._definition.functions["model"].value else "return"
            raise InvalidDefinition(
                f"{self._told('model')} {kind_of(made)}; it must {must} an nn.Module, or a dict of them"
            )
        if isinstance(model, nn.ModuleDict) and not self.steps:
            raise InvalidDefinition(
                f"model() returned several models ({', '.join(model)}), and there is no step that says how they train: "
                "write def step(model, batch), or def step_<name>(...) for each optimizer"
            )
        return model

    def optimizers(self, model: nn.Module) -> dict[str, torch.optim.Optimizer]:
        """Return the user's optimizers by name; a single one has the name "".

        If the user has defined no function `optimizer`, create an AdamW for each training step.
        """
        params, named, parts = list(model.parameters()), list(model.named_parameters()), parts_of(model)
        if not self.has("optimizer"):
            lr = self.params.get("lr", 1e-3)
            assert isinstance(lr, int | float)
            keys = [step.removeprefix("step_") for step in self.steps if step != "step"]
            if unknown := [key for key in keys if key not in parts]:
                raise InvalidDefinition(
                    f"step_{unknown[0]} trains no model: model() returns {', '.join(parts) or 'one'}. Write "
                    f"optimizer(), which returns a dict with {unknown[0]}"
                )
            return {key: torch.optim.AdamW((parts[key] if key else model).parameters(), lr=lr) for key in keys or [""]}
        made = self.prepared("optimizer", frozenset({"params", "named_params", *parts}))
        result = made(params=params, named_params=named, **parts)
        optimizers = result if isinstance(result, dict) else {"": result}
        for key, optimizer in optimizers.items():
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise InvalidDefinition(
                    f"{self._told('optimizer')} {kind_of(optimizer)}{f' for {key}' if key else ''}; it must return a "
                    "torch.optim.Optimizer, or a dict of them"
                )
            _must_be_the_models(optimizer, params, self._told("optimizer"))
        return optimizers

    def schedules(self, optimizers: Mapping[str, torch.optim.Optimizer]) -> dict[str, LRScheduler]:
        """Return the user's learning rate schedules by name; a single one has the name "".

        Return {} if the user has defined no `schedule`.
        """
        if not self.has("schedule"):
            return {}
        given = optimizers.get("", dict(optimizers))
        made = self.prepared("schedule", frozenset({"optimizer"}))(optimizer=given)
        schedules = made if isinstance(made, dict) else {"": made}
        for schedule in schedules.values():
            if not isinstance(schedule, LRScheduler):
                raise InvalidDefinition(
                    f"{self._told('schedule')} {kind_of(schedule)}; it must return a torch.optim.lr_scheduler, or a "
                    "dict of them"
                )
            if schedule.optimizer not in optimizers.values():
                raise InvalidDefinition(
                    f"{self._told('schedule')} of another optimizer than the definition's: give it that one"
                )
            if isinstance(schedule, ReduceLROnPlateau) and not self.has("validation_data"):
                raise InvalidDefinition(
                    "schedule() returned a ReduceLROnPlateau, which goes by the validation (--metric), and there is "
                    "no validation_data: add it, or take a schedule that goes by steps"
                )
        return schedules

    def step_function(self, role: str) -> Callable[..., Any]:
        """Return the user's `loss` or `metrics`, called with keywords `output`, `target`, `input`, `batch`, `epoch`."""
        return self.prepared(role, _OF_A_STEP)

    def training_step(self, role: str, model: nn.Module) -> Callable[..., Any]:
        """Return the user's training step function named `role`.

        It must be called with keywords: the model, its parts by name, and the values of the training loop such as
        `batch`.
        """
        return self.prepared(role, _OF_A_TRAINING_STEP | {"model", *parts_of(model)})

    def augment(self) -> Callable[..., Any] | None:
        """Return the user's `augment`, called with keywords `batch`, `epoch` and `index`; None if there is none."""
        return self.prepared("augment", _OF_AUGMENT) if self.has("augment") else None

    def collate(self) -> Callable[[list[Any]], Any] | None:
        """Return the user's `collate` as a function of the list of samples; None if there is none."""
        if not self.has("collate"):
            return None
        made = self.prepared("collate", frozenset({"batch"}))
        return lambda samples: made(batch=samples)

    def on_epoch(self, model: nn.Module) -> Callable[..., Any] | None:
        """Return the user's `on_epoch`, called with `epoch` and the models as keywords; None if there is none."""
        if not self.has("on_epoch"):
            return None
        return self.prepared("on_epoch", frozenset({"epoch", "model", *parts_of(model)}))

    @property
    def schedules_know_length(self) -> bool:
        """Return True if the user's `schedule` takes the training's total number of steps or epochs."""
        parameters = self._definition.functions["schedule"].parameters if self.has("schedule") else ()
        return any(each.value_of in ("steps", "epochs") and each.kind == "loop" for each in parameters)

    @property
    def takes_whole_batch(self) -> bool:
        """Return True if no function of the user takes `target`, so that batches need not have one.

        The functions meant are `loss`, `metrics` and training steps.
        """
        return not any("target" in self.asked(role) for role in ("loss", "metrics", *self.steps) if self.has(role))

    @property
    def leaves_loss_to_model(self) -> bool:
        """Return True if the user's `loss` takes nothing of a batch, so that the model's own output must have it."""
        return self.has("loss") and not self.asked("loss") & {"target", "input", "batch"}

    def asked(self, role: str) -> frozenset[str]:
        """Return the names of the training step's values (`output`, `batch` ...) that the function for `role` takes."""
        function = self._definition.functions[role]
        if role == "metrics" and function.value and self._are_objects(getattr(self._module, function.attribute)):
            return frozenset()
        parameters = function.parameters
        return (_OF_A_STEP | _OF_A_TRAINING_STEP) & {each.value_of for each in parameters if each.kind == "loop"}

    def result(self, name: str) -> Any:
        """Return the result of the user's function `name`, called without further arguments. Later calls reuse it."""
        if name not in self._results:
            self._results[name] = self.prepared(name, frozenset())()
        return self._results[name]

    def prepared(self, name: str, given: frozenset[str]) -> Callable[..., Any]:
        """Return a wrapper of the user's function `name` that takes only the arguments in `given`, as keywords.

        All other arguments, such as hyperparameters and the results of other functions, are computed now, so that a
        call has little overhead. The random generators are reseeded from the job's seed and `name`. Raises
        InvalidDefinition for an argument that is not available to this function.
        """
        function = self._definition.functions[name]
        if function.value:
            return self._of_value(function)
        fixed = function.hyperparameters(self.params)
        wanted: dict[str, str] = {}
        for parameter in function.parameters:
            value = parameter.value_of
            if value in given and parameter.kind != "hyperparameter":
                wanted[parameter.name] = value
            elif parameter.kind == "function":
                fixed[parameter.name] = self.result(value)
            elif parameter.kind == "loop":
                fixed[parameter.name] = self._constant(name, value, parameter.line, given)
        called = getattr(self._module, function.attribute)
        # Its draws must not depend on functions called before it.
        seeds.reseed(seeds.mix(self._seed, "init", name))
        return lambda **values: called(**fixed, **{each: values[value] for each, value in wanted.items()})

    def _of_value(self, function: Function) -> Callable[..., Any]:
        """Return a function for a role to which the user has assigned a value, as in `loss = nn.MSELoss()`.

        The returned function calls the value with positional arguments, such as output and target. For a role that
        takes no such arguments, it returns the value itself. Raises InvalidDefinition if the value must be called but
        is not callable.
        """
        value = getattr(self._module, function.attribute)
        order = [each.value_of for each in function.parameters]
        if not order or (function.name == "metrics" and self._are_objects(value)):
            return lambda **given: value
        if isinstance(value, Mapping):
            for each in value.values():
                self._check_callable(function, each)
            orders = {name: _order_of(each, order) for name, each in value.items()}
            return lambda **given: {name: each(*(given[own] for own in orders[name])) for name, each in value.items()}
        self._check_callable(function, value)
        order = _order_of(value, order)
        return lambda **given: value(*(given[own] for own in order))

    @staticmethod
    def _check_callable(function: Function, value: Any) -> None:
        if not callable(value) or isinstance(value, type):
            what = f"the class {value.__name__}" if isinstance(value, type) else kind_of(value)
            raise InvalidDefinition(
                f"{function.attribute} (line {function.line}) is {what}; it must be callable with "
                f"{', '.join(each.value_of for each in function.parameters)}, such as nn.CrossEntropyLoss()"
            )

    @staticmethod
    def _are_objects(value: Any) -> bool:
        """Return True if `value` is a metric object such as those of torchmetrics, or a dict with at least one."""
        return is_metric(value) or (isinstance(value, Mapping) and any(map(is_metric, value.values())))

    def _told(self, role: str) -> str:
        """Return the start of an error message about what the user provided for `role`.

        It is `model() returned` for a function, or `net (line 4) is` for a value that was assigned to a name.
        """
        function = self._definition.functions[role]
        return f"{function.attribute} (line {function.line}) is" if function.value else f"{role}() returned"

    def _constant(self, function: str, name: str, line: int, given: frozenset[str]) -> Any:
        if name not in self._constants:
            can = " ".join(sorted(given | set(self._constants)))
            raise InvalidDefinition(f"{function} (line {line}) takes {name}, and can have: {can}", line=line)
        return self._constants[name]


def _order_of(called: Callable[..., Any], order: list[str]) -> list[str]:
    """Return the names of a loss's or metric's arguments in the order in which the function `called` takes them.

    `order` is the usual order. Only `output, target` is reversed, for functions such as `f(y_true, y_pred)`.
    """
    if order != ["output", "target"]:
        return order
    try:
        names = list(inspect.signature(called).parameters)
    except (TypeError, ValueError):  # implemented in C
        return order
    return order[::-1] if takes_target_first(names) else order


def module_of(made: Any) -> nn.Module | None:
    """Convert the result of the user's `model()` to one module: a dict of modules becomes an `nn.ModuleDict`.

    Return None for a value that is not a module.
    """
    if isinstance(made, Mapping) and made and all(isinstance(each, nn.Module) for each in made.values()):
        try:
            return nn.ModuleDict(dict(made))
        except (KeyError, TypeError) as error:
            names = ", ".join(map(str, made))
            raise InvalidDefinition(f"model() calls one of its models {names}: {error}; give it another name") from None
    return made if isinstance(made, nn.Module) else None


def parts_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the models by name if the user's `model()` returned several; {} for a single one."""
    return dict(model.items()) if isinstance(model, nn.ModuleDict) else {}


def step_result(role: str, result: Any) -> tuple[Tensor, Mapping[str, Any]] | None:
    """Return the loss and the logged values from what the user's training step returned.

    Return None if the step returned None, which means that it trains nothing this time. `role` is the step's name, for
    error messages. Raises InvalidDefinition for other results, as for those of `loss`.
    """
    return None if result is None else loss_and_logged(result, role)


def loss_and_logged(result: Any, role: str = "loss") -> tuple[Tensor, Mapping[str, Any]]:
    """Return the loss and the logged values from what the user's `loss`, or training step `role`, returned.

    In a dict, `loss` is the loss and the rest is logged. Without such an item the loss is the sum of all values, as for
    the dicts that torchvision's detection models return. Raises InvalidDefinition for other results.
    """
    loss, logged = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    if isinstance(result, Mapping) and "loss" in result:
        loss, logged = result["loss"], {name: value for name, value in result.items() if name != "loss"}
    elif isinstance(result, Mapping) and all(
        isinstance(each, Tensor) and each.numel() == 1 for each in result.values()
    ):
        loss, logged = sum(each.reshape(()) for each in result.values()), result
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not isinstance(logged, Mapping):
        none = "; None trains nothing in this step" if role != "loss" else ""
        raise InvalidDefinition(
            f"{role}() returned {kind_of(result)} as its loss; it must return a scalar tensor, (scalar, dict of values "
            f"to log), or a dict of scalar tensors, of which it is loss, or the sum of all{none}"
        )
    return loss.reshape(()), logged


def _must_be_the_models(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], told: str) -> None:
    known = {id(each) for each in params}
    strange = [each for group in optimizer.param_groups for each in group["params"] if id(each) not in known]
    if strange:
        shapes = ", ".join(str(tuple(each.shape)) for each in strange[:3])
        raise InvalidDefinition(
            f"{told.removesuffix(' is').removesuffix(' returned')} has parameters that are not the model's (of shape "
            f"{shapes}): make the module that has them a part of the model, so that they are summed over all ranks and "
            "saved"
        )


def kind_of(value: Any) -> str:
    """Return what a value is, for error messages, such as `a list of 3`."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"
