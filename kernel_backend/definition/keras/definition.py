"""Build the definition of a notebook cell with a Keras model: `model`, its data and `callbacks` are the roles."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from kernel_backend.definition.contract import Definition, Function
from kernel_backend.definition.keras.cell import keras_backend
from kernel_backend.definition.keras.fit import KerasFit, constants_of, settings
from kernel_backend.definition.merge import merged
from kernel_backend.definition.script.hyperparameters import constants
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import FunctionNode

ROLES = ("prepare", "model", "train_data", "validation_data", "callbacks")
_OTHERS = {
    "optimizer": "give it to model.compile(optimizer=...)",
    "metrics": "give them to model.compile(metrics=[...])",
    "schedule": "give the optimizer a keras.optimizers.schedules, or write a callback such as ReduceLROnPlateau",
    "step": "override train_step of a class deriving from keras.Model",
    "collate": "give it to a DataLoader that train_data returns",
    "sampler": "give it to a DataLoader that train_data returns",
    "augment": "put layers such as keras.layers.RandomFlip into the model",
    "test_data": "load the trained model with job.load(), and evaluate it there",
    "on_epoch": "write a keras.callbacks.Callback, which the function callbacks returns",
}
_SHOWN = 80  # maximum length of the quoted call
_LENGTHS = {"epochs": "number of epochs: write --epochs N", "batch_size": "batch size: write --batch-size N"}
_HIGH = ("acc", "accuracy", "auc")  # suffixes of metrics that Keras maximizes


def keras_definition(tree: ast.Module, roles_from: int, functions: Mapping[str, Function]) -> Definition:
    """Return the training definition of a Keras cell; `functions` are the cell's roles and the functions that they use.

    Raises InvalidDefinition for a cell without training data, for functions that this form does not call, for a call
    of `fit`, and for a Keras backend that a job does not support.
    """
    backend = keras_backend(tree)
    _check_fits(tree, roles_from)
    own = {each.name: each for each in tree.body if isinstance(each, FunctionNode) and each.lineno >= roles_from}
    for name, instead in _OTHERS.items():
        if name in own and name not in functions:
            line = own[name].lineno
            raise InvalidDefinition(
                f"{name} (line {line}) is not called, as model() compiles a Keras model: {instead}",
                line=line,
                text=name,
                roles=[name],
            )
    if "train_data" not in functions:
        raise InvalidDefinition(
            "nothing gives the Keras model its training data. Write for example\n"
            "def train_data():\n    return x_train, y_train",
            roles=["train_data"],
        )
    validates = "validation_data" in functions
    return Definition(
        form="keras",
        roles=tuple(name for name in functions if name in ROLES),
        functions=dict(functions),
        hyperparameters=merged(functions),
        settings={"metric": _metric(tree)} if validates else {},
        keras_backend=backend,
    )


def fit_definition(tree: ast.Module, fit: KerasFit) -> Definition:
    """Return the training definition of a cell that calls Keras' `fit`: its constants are the hyperparameters.

    Raises InvalidDefinition for arguments of `fit` that a job does not support, and for another Keras backend.
    """
    fit.check()
    backend = keras_backend(tree)
    found, given = constants(tree), fit.given
    validates = not given.keys().isdisjoint(("validation_data", "validation_split"))
    parts = {"model": True, "train_data": True, "validation_data": validates, "callbacks": "callbacks" in given}
    values = {"model": fit.model, "callbacks": ast.unparse(given.get("callbacks", ast.Constant(None)))}
    roles = tuple(role for role, is_given in parts.items() if is_given)
    lengths = {name: name for name in _LENGTHS} | {name: what for what, name in constants_of(fit, found.places).items()}
    return Definition(
        form="keras",
        roles=roles,
        functions={
            role: Function(
                name=role,
                written=fit.model if role == "model" else "",
                line=fit.call.lineno,
                parameters=(),
                value=values.get(role, ast.unparse(given["x"])),
            )
            for role in roles
        },
        hyperparameters={name: each for name, each in found.parameters.items() if name not in lengths},
        settings=settings(fit, found.places) | ({"metric": _metric(tree)} if validates else {}),
        about=f"{fit.model}.fit (line {fit.call.lineno}){' on TensorFlow' * (backend == 'tensorflow')}",
        excluded=dict(found.refused) | {name: f"{name} is the {_LENGTHS[what]}" for name, what in lengths.items()},
        hints=tuple(_hints(fit)),
        keras_backend=backend,
    )


def _hints(fit: KerasFit) -> Iterator[str]:
    if fit.after:
        yield (
            f"line {fit.after[0].lineno} and those below it are not run, as they stand behind fit: write them in a "
            "cell of their own, which waits for this job"
        )


def _check_fits(tree: ast.Module, roles_from: int) -> None:
    """Raise InvalidDefinition if the cell itself calls `fit` of what `model()` returns, as the job calls it as well."""
    made = {
        target.id
        for each in tree.body
        if isinstance(each, ast.Assign) and _calls_model(each.value)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    for each in tree.body:
        if each.lineno < roles_from or isinstance(each, FunctionNode | ast.ClassDef):
            continue
        for node in ast.walk(each):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fit"):
                continue
            owner = node.func.value
            if _calls_model(owner) or (isinstance(owner, ast.Name) and owner.id in made):
                text = ast.unparse(node)[:_SHOWN]
                raise InvalidDefinition(
                    f"this cell trains by itself (line {node.lineno}: {text}), and a job calls fit of model() itself: "
                    "take that statement away",
                    line=node.lineno,
                    text=text,
                )


def _calls_model(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "model"


def _metric(tree: ast.Module) -> dict[str, str]:
    """Return the metric that selects the best checkpoint, and its mode.

    It is one that a callback monitors, else `val_loss`.
    """
    monitored = [found for node in ast.walk(tree) if isinstance(node, ast.Call) for found in _monitored(node)]
    found: tuple[int, str, str] = min(monitored, default=(0, "val_loss", "min"))
    return {"name": found[1], "mode": found[2]}


def _monitored(call: ast.Call) -> Iterator[tuple[int, str, str]]:
    """Yield (order, metric, mode) if the call creates a callback that monitors a validation metric.

    The metric with the lowest order is used; that of a ModelCheckpoint has order 0.
    """
    kind = ast.unparse(call.func).rpartition(".")[2]
    words: dict[str, Any] = {
        each.arg: each.value.value for each in call.keywords if each.arg and isinstance(each.value, ast.Constant)
    }
    name = words.get("monitor")
    if kind in _CALLBACKS and isinstance(name, str) and name.startswith("val_"):
        mode = words.get("mode")
        mode = mode if mode in ("min", "max") else ("max" if name.endswith(_HIGH) else "min")
        yield _CALLBACKS.index(kind), name, mode


_CALLBACKS = ("ModelCheckpoint", "EarlyStopping", "ReduceLROnPlateau")
