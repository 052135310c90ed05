"""Describe the form trainer: a cell with a Trainer of Hugging Face."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.form import Source, TrainingForm
from kernel_backend.definition.trainer.cell import is_trainer, trainer_cell
from kernel_backend.definition.trainer.definition import ROLE, trainer_definition
from kernel_backend.definition.trainer.source import importable, model_only
from kernel_backend.definition.trainer_arguments import callbacks_of, model_of
from kernel_backend.model.record import Value


def _recognises(source: Source) -> bool:
    return is_trainer(source.tree, source.roles_from)


def _parse(source: Source) -> Definition:
    return trainer_definition(source.tree, source.roles_from)


def _importable(
    tree: ast.Module, roles_from: int, definition: Definition, params: Mapping[str, Value], lengths: Mapping[str, int]
) -> ast.Module:
    values = definition.functions[ROLE].hyperparameters({**definition.defaults, **params})
    return importable(tree, roles_from, values)


def _loadable(tree: ast.Module, roles_from: int, definition: Definition) -> ast.Module:
    return model_only(tree, roles_from)


def _gives(tree: ast.Module, roles_from: int, definition: Definition) -> list[str]:
    """Return the model of a cell, its Trainer and callbacks."""
    given = trainer_cell(tree, roles_from)
    return [*model_of(given.trainer), given.name, *callbacks_of(given.trainer)]


TRAINER = TrainingForm(
    name="trainer",
    recognises=_recognises,
    parse=_parse,
    training="kernel_backend.runner.forms.trainer.training:TrainerTraining",
    framework="transformers",
    loop="the Trainer of Hugging Face takes the steps: leave it out, and write in TrainingArguments",
    refuses={
        "accumulate": "gradient_accumulation_steps=N",
        "amp": "bf16=True or fp16=True",
        "batch_size": "per_device_train_batch_size=N, which is that of one slot and a hyperparameter",
        "clip": "max_grad_norm=1.0",
        "compile": "nothing: model.compile() above the Trainer does it",
        "ema": "nothing: a callback of the Trainer may average weights",
        "gather_loss": "nothing: write compute_loss",
        "logical_workers": "nothing: its batches are cut by the number of slots",
        "patience": "nothing: give the Trainer callbacks=[EarlyStoppingCallback(early_stopping_patience=N)]",
        "per_slot_batch": "nothing: per_device_train_batch_size is that of one slot",
        "rng": "nothing: random states are in the checkpoints",
        "schedule_per": "lr_scheduler_type",
        "strategy": "nothing: each slot has the model",
        "sync_bn": "nothing: its BatchNorm has the statistics of each slot's samples",
        "validate_every": 'eval_strategy="steps", eval_steps=N',
        "validate_first": "eval_on_start=True",
    },
    fixed_slots="per_device_train_batch_size is that of one slot, so that the whole batch would change",
    advice="return it from compute_metrics",
    importable=_importable,
    hides_ranks=True,
    loadable=_loadable,
    model_role=ROLE,
    gives=_gives,
)
