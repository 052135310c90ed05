"""Describe the form keras: a cell whose `model()` compiles a Keras model, or which calls `fit`."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernel_backend.definition.arguments import called_functions
from kernel_backend.definition.checks import check_prepare
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.form import Source, TrainingForm, model_given
from kernel_backend.definition.keras.cell import is_keras
from kernel_backend.definition.keras.definition import ROLES, fit_definition, keras_definition
from kernel_backend.definition.keras.fit import keras_fit
from kernel_backend.definition.keras.source import importable, training_line
from kernel_backend.definition.script.defined import definitions
from kernel_backend.definition.trainer_arguments import callbacks_of
from kernel_backend.model.record import Value


def _recognises(source: Source) -> bool:
    return is_keras(source.tree, source.roles_from) or keras_fit(source.tree, source.roles_from) is not None


def _parse(source: Source) -> Definition:
    fit = keras_fit(source.tree, source.roles_from)
    if fit is not None:
        return fit_definition(source.tree, fit)
    functions = called_functions(source.tree, source.roles_from, ROLES)
    definition = keras_definition(source.tree, source.roles_from, functions)
    if "prepare" in definition.roles:
        check_prepare(definition)
    return definition


def _importable(
    tree: ast.Module, roles_from: int, definition: Definition, params: Mapping[str, Value], lengths: Mapping[str, int]
) -> ast.Module:
    return importable(tree, roles_from, params, lengths)


def _loadable(tree: ast.Module, roles_from: int, definition: Definition) -> ast.Module | None:
    return definitions(tree) if definition.calls_fit else None


def _gives(tree: ast.Module, roles_from: int, definition: Definition) -> list[str]:
    """Return the history of a cell that calls `fit`, its model and callbacks; else the model, if that is a value."""
    call = keras_fit(tree, roles_from)
    if call is None:
        return model_given(tree, roles_from, definition)
    return [*([call.target] if call.target else []), call.model, *callbacks_of(call.call)]


KERAS = TrainingForm(
    name="keras",
    recognises=_recognises,
    parse=_parse,
    training="kernel_backend.runner.forms.keras.training:KerasTraining",
    framework="keras",
    loop="Keras' own fit takes the steps: leave it out, and write",
    refuses={
        "accumulate": "gradient_accumulation_steps=N of the optimizer",
        "amp": 'keras.config.set_dtype_policy("mixed_bfloat16") above the layers',
        "clip": "global_clipnorm=1.0 of the optimizer",
        "compile": "jit_compile=True of model.compile",
        "ema": "use_ema=True of the optimizer",
        "gather_loss": "a loss of what it needs",
        "logical_workers": "nothing: its batches are cut by the number of slots",
        "rng": "nothing: Keras keeps its random states in variables, which checkpoints hold",
        "schedule_per": "a callback such as LearningRateScheduler",
        "strategy": "nothing: each slot has the model",
        "sync_bn": "synchronized=True of BatchNormalization",
        "validate_every": "nothing: Keras validates after each epoch",
        "validate_first": "nothing: Keras validates after each epoch",
    },
    advice="pass it to compile(metrics=[...])",
    by_role=True,
    importable=_importable,
    loadable=_loadable,
    training_line=training_line,
    gives=_gives,
    local="Write model().fit(...) below the functions of this cell, and run it without the line of the magic",
    script=(
        "a job cuts Keras' batches in an order by --seed, which fit alone does not know, so that numbers would be "
        "others. For a plain script write model().fit(x, y, epochs=..., batch_size=...) below these functions"
    ),
)
