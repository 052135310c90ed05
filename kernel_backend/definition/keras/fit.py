"""Find the call `model.fit(...)` of a cell that trains a Keras model, and read the settings that its arguments give."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_backend.definition.keras.cell import compiles, imports_keras
from kernel_backend.definition.script.hyperparameters import constants
from kernel_backend.definition.script.written import Place, expression
from kernel_backend.definition.trainer.cell import statements
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.record import Value
from kernel_backend.model.syntax import FunctionNode

_ARGUMENTS = (
    "x", "y", "batch_size", "epochs", "verbose", "callbacks", "validation_split", "validation_data", "shuffle",
    "class_weight", "sample_weight", "initial_epoch", "steps_per_epoch", "validation_steps", "validation_batch_size",
    "validation_freq",
)  # fmt: skip
# Arguments that a job does not support, with their defaults, and the alternative for each.
_REFUSED: Mapping[str, tuple[Value, str]] = {
    "initial_epoch": (0, "a restart continues at the epoch where it was"),
    "steps_per_epoch": (None, "an epoch is a pass over the data: give fewer samples"),
    "validation_steps": (None, "a validation is a pass over its data: give fewer samples"),
    "validation_freq": (1, "each epoch is validated"),
}
_OF_KERAS = frozenset({"epochs", "validation_split", "validation_data", "callbacks"})  # no estimator has these
_CAPTURED = "captured"
_DEFAULTS = {"epochs": 1, "batch_size": 32}  # of Keras


@dataclass(frozen=True)
class KerasFit:
    """Call `model.fit(...)` at the top level of a cell, and the statements around it."""

    call: ast.Call
    model: str  # the variable that holds the model
    target: str  # the variable that gets the history; "" if there is none
    above: Sequence[ast.stmt]  # statements before it, including those of earlier cells
    after: Sequence[ast.stmt]  # statements after it, which a job does not run

    @property
    def given(self) -> dict[str, ast.expr]:
        """Return the arguments by name; raises InvalidDefinition for those that are unpacked by `*` or `**`."""
        found = dict(zip(_ARGUMENTS, self.call.args, strict=False))
        for each in self.call.keywords:
            if each.arg is not None:
                found[each.arg] = each.value
        unpacked = any(isinstance(each, ast.Starred) for each in self.call.args)
        if unpacked or any(each.arg is None for each in self.call.keywords):
            raise self._refused("has arguments that the cell does not show: write them out for * and **")
        return found

    def check(self) -> None:
        """Raise InvalidDefinition for arguments that a job does not support, and for a second call of `fit`."""
        given = self.given
        for name, (default, instead) in _REFUSED.items():
            if name in given and not _is(given[name], default):
                raise self._refused(f"has {name}={ast.unparse(given[name])}, which no job has: {instead}")
        if "x" not in given:
            raise self._refused("has no data: write fit(x, y)")
        second = next((each for each in self.after if any(fits(each, {self.model}))), None)
        if second is not None:
            raise InvalidDefinition(
                f"the cell trains {self.model} twice (lines {self.call.lineno} and {second.lineno}), and a job trains "
                "once: write the second fit in a cell of its own, which waits for this job and trains its model on",
                line=second.lineno,
                text=ast.unparse(second),
            )

    def _refused(self, why: str) -> InvalidDefinition:
        text = f"{self.model}.fit(...)"
        return InvalidDefinition(f"{text} (line {self.call.lineno}) {why}", line=self.call.lineno, text=text)

    def length(self, name: str, places: Mapping[str, Place]) -> tuple[int, str]:
        """Return the value of the argument `epochs` or `batch_size`, and the constant that holds it ("" for none).

        `places` are the hyperparameters of the cell. Raises InvalidDefinition if the value is not known at submit.
        """
        node = self.given.get(name)
        if node is None or _is(node, None):
            return _DEFAULTS[name], ""
        constant = node.id if isinstance(node, ast.Name) and node.id in places else ""
        value = places[constant].default if constant else getattr(node, "value", None)
        if type(value) is not int or value < 1:
            raise self._refused(
                f"has {name}={ast.unparse(node)}, which is not known at submit: write a number, or a constant such as "
                f"{name.upper()} = {_DEFAULTS[name]} above it"
            )
        return value, constant


def keras_fit(tree: ast.Module, roles_from: int) -> KerasFit | None:
    """Return the first `fit` call of a compiled Keras model at the top level from line `roles_from` on; None without.

    A cell with a function `train_data` consists of functions.

    Examples
    --------
    >>> text = "import keras; net = keras.Sequential(); net.compile(loss='mse'); h = net.fit(x, y)"
    >>> found = keras_fit(ast.parse(text), 1)
    >>> found.model, found.target
    ('net', 'h')
    """
    body = statements(tree.body)
    if any(isinstance(each, FunctionNode) and each.name == "train_data" for each in body):
        return None
    compiled = compiled_models(tree)
    for place, each in enumerate(body):
        call = next(fits(each, compiled), None) if each.lineno >= roles_from else None
        if call is not None and isinstance(each, ast.Expr | ast.Assign) and each.value is call:
            target = each.targets[0] if isinstance(each, ast.Assign) else None
            name = target.id if isinstance(target, ast.Name) else ""
            return KerasFit(call, ast.unparse(call.func).partition(".")[0], name, body[:place], body[place + 1 :])
    return None


def settings(fit: KerasFit, places: Mapping[str, Place]) -> dict[str, Any]:
    """Return the fields of Config that the call sets: `epochs` and `batch_size`."""
    return {name: fit.length(name, places)[0] for name in _DEFAULTS}


def constants_of(fit: KerasFit, places: Mapping[str, Place]) -> dict[str, str]:
    """Return the constants that hold the number of epochs and the batch size, by the name of the setting."""
    return {name: found for name in _DEFAULTS if (found := fit.length(name, places)[1])}


def write_values(tree: ast.Module, fit: KerasFit, params: Mapping[str, Value], lengths: Mapping[str, int]) -> None:
    """Write a trial's hyperparameters, and its epochs and batch size, into the constants of the module `tree`."""
    places = constants(tree).places
    named = {constant: lengths[name] for name, constant in constants_of(fit, places).items() if name in lengths}
    for name, place in places.items():
        if name in named and named[name] != place.default:
            place.put(expression(named[name], place.line))
        elif name in params and name not in named:
            place.write(params[name])


def compiled_models(tree: ast.Module) -> set[str]:
    """Return the variables that hold compiled Keras models.

    On these `compile` is called, or a function that compiles has made them. A model that travels as a value, such as
    one that an earlier job has trained, is known by the arguments of its `fit`.
    """
    return {*(_compiled(tree) if imports_keras(tree) else ()), *_travelling(tree)}


def _travelling(tree: ast.Module) -> Iterator[str]:
    for each in tree.body:
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call) and isinstance(each.targets[0], ast.Name):
            name = each.targets[0].id
            if ast.unparse(each.value.func) == _CAPTURED and any(_of_keras(fit) for fit in _all_fits(tree, name)):
                yield name


def _all_fits(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    return (call for each in tree.body for call in fits(each, {name}))


def _of_keras(fit: ast.Call) -> bool:
    return not _OF_KERAS.isdisjoint(each.arg for each in fit.keywords)


def _compiled(tree: ast.Module) -> Iterator[str]:
    makers = {each.name for each in tree.body if isinstance(each, FunctionNode) and any(compiles(each, tree))}
    for each in statements(tree.body):
        if isinstance(each, FunctionNode | ast.ClassDef):
            continue
        for node in ast.walk(each):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
                yield ast.unparse(node.func.value)
        value = each.value if isinstance(each, ast.Assign) else None
        if isinstance(value, ast.Call) and ast.unparse(value.func) in makers:
            assert isinstance(each, ast.Assign)
            for target in each.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from (name.id for name in names if isinstance(name, ast.Name))


def fits(statement: ast.stmt, models: Collection[str]) -> Iterator[ast.Call]:
    """Yield the calls of `fit` of these variables in a statement; definitions call nothing."""
    for node in ast.walk(statement) if not isinstance(statement, FunctionNode | ast.ClassDef) else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"{model}.fit" for model in models}:
            yield node


def _is(node: ast.expr, value: Value) -> bool:
    return isinstance(node, ast.Constant) and node.value == value and type(node.value) is type(value)
