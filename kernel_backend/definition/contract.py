"""Define what a training definition consists of: roles, their arguments, and hyperparameters with their values.

A *role* is a function that Daylight calls (`model`, `train_data`, `loss`, ...). Its arguments are passed by name: *loop
values* such as `output` and `epoch`, results of other functions, and hyperparameters for all other names. Errors give
locations as `line N` of the source, which callers that know the cells replace by `cell [4] line 2`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

from kernel_backend.definition.command_line import Command
from kernel_backend.definition.rewritten import as_function, keywords
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.record import Record, Value
from kernel_backend.model.values import coerce, nearest

# Backends of Keras that a job trains on.
KerasBackend = Literal["torch", "tensorflow"]
# fmt: off
ROLES = (
    "model", "train_data", "validation_data", "test_data", "optimizer", "loss", "step", "metrics",
    "schedule", "collate", "sampler", "augment", "prepare", "on_epoch",
)  # roles `step_<key>` exist as well
REQUIRED = ("model", "train_data", "loss")
LOOP_VALUES = frozenset({
    "params", "named_params", "input", "output", "target", "batch", "epoch", "index", "device", "rank",
    "world", "run", "optimizer", "steps", "epochs",
})
# Roles that code often calls itself: if the cell's own code uses such a function, it is a helper instead.
HELPERS = frozenset({"collate", "sampler", "augment", "on_epoch"})
# fmt: on Version of the rules for reading a definition. A snapshot stores its version, so that it is always read by the
# same rules. 2: aliases of roles are accepted, and the default AdamW has a hyperparameter `lr`. 3: aliases of test_data
# and collate, and other forms than functions. 4: a role may be an assigned value. 5: a loss that takes the model is a
# training step, whose arguments may have other names.
CONTRACT = 5
SINCE_THREE = frozenset({"test_data", "collate"})
# Loop values that a role can take, for messages.
CAN_ASK = {
    "loss": "output, target, input, batch, epoch",
    "metrics": "output, target, input, batch, epoch",
    "optimizer": "params, named_params",
    "schedule": "optimizer, steps, epochs",
    "step": "model or the names of what it returns, batch, input, target, index, epoch",
    "collate": "batch, the list of samples",
    "augment": "batch, epoch, index",
    "sampler": "train_data",
    "on_epoch": "model or the names of what it returns, epoch, run",
}
_STEP = re.compile(r"step_\w+")


class Parameter(Record):
    """Argument of a role or of a shared function, with the kind of value that it receives."""

    name: str
    source: str = ""  # the loop value or function whose value it receives, if that has another name
    kind: Literal["loop", "function", "hyperparameter"]
    required: bool
    default: Value = None
    annotation: str | None = None
    line: int  # 0: argument of the default optimizer
    is_tuple: bool = False  # the default is a tuple, which JSON cannot represent

    @property
    def value_of(self) -> str:
        """Return the name of the loop value, or of the function, whose value the argument receives."""
        return self.source or self.name

    @property
    def place(self) -> str:
        """Return the line of the argument for messages, such as `line 4`."""
        return f"line {self.line}" if self.line else "of AdamW, as there is no optimizer"


class Function(Record):
    """Function of a training definition: a role, or a shared function.

    The result of a shared function is passed to every role with an argument of its name.
    """

    name: str
    written: str = ""  # the function's own name, if it is an alias of the role `name`
    line: int
    parameters: tuple[Parameter, ...]
    value: str = ""  # the source of the assigned value, if the role is a value and not a function

    @property
    def attribute(self) -> str:
        """Return the function's name in the user's module, which may be an alias of the role."""
        return self.written or self.name

    def hyperparameters(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Return this function's hyperparameters by name, with the trial's `values`.

        A list is converted to a tuple if the default in the signature is one.
        """
        mine = [parameter for parameter in self.parameters if parameter.kind == "hyperparameter"]
        return {each.name: _own_type(each, values[each.name]) for each in mine}


def _own_type(parameter: Parameter, value: Value) -> Any:
    return tuple(value) if parameter.is_tuple and isinstance(value, list) else value


class Definition(Record):
    """Parsed training definition: its roles, shared functions and hyperparameters."""

    form: str = "functions"  # name of its TrainingForm
    roles: tuple[str, ...]  # in source order
    functions: dict[str, Function]  # roles and shared functions
    hyperparameters: dict[str, Parameter]
    hints: tuple[str, ...] = ()  # hints for the user that do not prevent training
    unused: tuple[str, ...] = ()  # warnings about unused functions that look like roles
    settings: dict[str, Any] = {}  # fields of Config that the code sets; options take precedence
    models: tuple[str, ...] = ()  # keys of the dict that `model` returns, as far as its source shows
    about: str = ""  # what trains, if no roles say it: its loops, a call of `fit`; of a command: why it is no script
    excluded: dict[str, str] = {}  # of a script: names that are not hyperparameters, with advice for each
    epochs_name: str = ""  # of a script: its own name for the number of epochs
    epochs_fixed: str = ""  # of a script: why `--epochs` cannot change its number of epochs; empty if it can
    rounds: int | None = None  # of a script: how many trainings it has in one loop, the units of a search
    command: Command | None = None  # for the forms command and script: the shell command
    keras_backend: KerasBackend | None = None  # for the form keras
    reports: tuple[str, ...] | None = None  # names of all values that it reports; None if its source hides some
    trainer: str = ""  # for the form loop: the class of the Hugging Face Trainer that `train(run)` trains

    @property
    def summary(self) -> str:
        """Return a line that describes the definition, such as `functions: model train_data criterion (as loss)`."""
        if self.about:
            return f"{self.form}: {self.about}"
        form = "keras on TensorFlow" if self.keras_backend == "tensorflow" else self.form
        by = f", by its {self.trainer}" if self.trainer else ""
        return f"{form}: {' '.join(map(self._told, self.roles))}{by}"

    @property
    def of_functions(self) -> bool:
        """Return True if the definition consists of functions, whose cell sets no variables."""
        return self.form in ("functions", "keras", "loop", "prediction", "evaluation") and not self.calls_fit

    @property
    def calls_fit(self) -> bool:
        """Return True if the cell calls Keras' `fit` itself."""
        return self.form == "keras" and bool(self.about)

    @property
    def stepped_by(self) -> str:
        """Return the form whose loop takes the training steps.

        That is "trainer" if the function `train(run)` trains a Trainer, else the definition's own form.
        """
        return "trainer" if self.trainer else self.form

    def _told(self, role: str) -> str:
        written = self.functions[role].written
        return f"{written} (as {role})" if written else role

    @property
    def steps(self) -> tuple[str, ...]:
        """Return the names of the training steps, `step` and `step_<key>`, in source order."""
        return tuple(role for role in self.roles if is_step(role))

    def needs(self, name: str) -> list[Function]:
        """Return the function `name` and all functions whose results it uses, directly or through others."""
        found = [self.functions[name]]
        for function in found:
            asked = (self.functions[each.value_of] for each in function.parameters if each.kind == "function")
            found += [each for each in asked if each not in found]
        return found

    def given(self, params: Mapping[str, Value]) -> dict[str, dict[str, Any]]:
        """Return the arguments that `params` sets: for each function or class of the cell, their values by name."""
        return {
            function.attribute: {
                name: value
                for name, value in function.hyperparameters({**self.defaults, **params}).items()
                if name in params
            }
            for function in self.functions.values()
        }

    @property
    def defaults(self) -> dict[str, Value]:
        """Return the defaults of all hyperparameters by name; None for those without a default."""
        return {name: each.default for name, each in self.hyperparameters.items()}

    def bind(self, given: Mapping[str, Value], but: Collection[str] = ()) -> dict[str, Value]:
        """Return the value of every hyperparameter, except those in `but`: the given one, else the default.

        Raises InvalidDefinition with all problems at once: names that are not hyperparameters (with the nearest name),
        values of the wrong type, and hyperparameters without a value.
        """
        problems = [self.unknown(name) for name in given if name not in self.hyperparameters]
        values: dict[str, Value] = {}
        for name, parameter in self.hyperparameters.items():
            if name in but:
                continue
            try:
                values[name] = self._value(parameter, given)
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise InvalidDefinition("\n".join(problems))
        return values

    def unknown(self, name: str) -> str:
        """Return the error message for a name that is not a hyperparameter."""
        if name in self.excluded:
            return self.excluded[name]
        if name and name == self.epochs_name:
            return f"{name} is the number of epochs: write --epochs N"
        if self.command is not None and self.form == "command":
            named = " ".join(f"{{{each}}}" for each in self.command.names) or "no placeholder"
            near = nearest(name, self.hyperparameters)
            return f"{name} has no place in the command{near}: write {{{name}}} where its value goes; it has {named}"
        names = " ".join(self.hyperparameters) or "none"
        values = [each for each in self.functions.values() if each.value] if self.of_functions else []
        for each in values:
            if name in (keyword.arg for keyword in keywords(ast.parse(each.value, mode="eval").body)):
                return (
                    f"{name} is no hyperparameter: {each.attribute} (line {each.line}) is a value. Write\n"
                    f"{as_function(each.name, each.value, name)}"
                )
        near = nearest(name, self.hyperparameters)
        listed = ", ".join(f"{each.attribute} (line {each.line})" for each in values)
        also = f". {listed}: values have none; an argument of def {values[0].name}(...) is one" if values else ""
        return f"{name} is no hyperparameter{near}; there are: {names}{also}"

    def _value(self, parameter: Parameter, given: Mapping[str, Value]) -> Value:
        name = parameter.name
        if name not in given:
            if self.command is not None and name in self.command.names:
                raise ValueError(f"{{{name}}} of the command has no value: write {name}=VALUE before the --")
            if parameter.required:
                raise ValueError(
                    f"{name} ({parameter.place}) has no value: write {name}=VALUE on the first line, "
                    f"a default into the signature, or a function named {name}{self._can_ask(name)}"
                )
            return parameter.default
        return self.fitted(name, given[name])

    def _can_ask(self, name: str) -> str:
        """Return the end of an error message about an argument without a value: what its function can take by name.

        Returns "" if no role has this argument.
        """
        roles = (role for role in self.roles if _key(role) in CAN_ASK)
        owner = next((role for role in roles if name in (each.name for each in self.functions[role].parameters)), None)
        if owner is None:
            return ""
        written, key = self.functions[owner].attribute, _key(owner)
        first = {"loss": "output", "metrics": "output", "step": "model"}.get(key)
        whole = f". def {written}({first}, batch) gets the whole batch, to be taken apart there" if first else ""
        return f". By name {written} can have {CAN_ASK[key]}{whole}"

    def fitted(self, name: str, value: Value) -> Value:
        """Return a value converted to the type of hyperparameter `name`; raises ValueError with the expected type."""
        parameter = self.hyperparameters[name]
        if value is None is parameter.default and not parameter.required:
            return None  # `width: int = None` implies that None is allowed
        try:
            return coerce(value, parameter.annotation, parameter.default)
        except ValueError as wanted:
            raise ValueError(f"{name}={value!r}: {name} ({parameter.place}) takes {wanted}") from None


def _key(role: str) -> str:
    return "step" if is_step(role) else role


def is_role(name: str) -> bool:
    """Return True if a function of this name is a role, that is one which Daylight calls."""
    return name in ROLES or is_step(name)


def is_step(name: str) -> bool:
    """Return True if a function is a training step: `step`, or `step_<key>` for one part of the model."""
    return name == "step" or _STEP.fullmatch(name) is not None
