"""Describe the form lightning: a cell with a LightningModule."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernel_backend.definition.arguments import called_functions
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.form import Modules, Source, TrainingForm
from kernel_backend.definition.lightning.cell import is_lightning, lightning_cell
from kernel_backend.definition.lightning.definition import lightning_definition
from kernel_backend.definition.lightning.source import importable
from kernel_backend.definition.reported.source import names_in_source
from kernel_backend.definition.script.modules import without_program
from kernel_backend.definition.trainer_arguments import callbacks_of, model_of
from kernel_backend.model.record import Value


def _recognises(source: Source) -> bool:
    """Return True for a cell with a LightningModule, unless its functions train it."""
    return is_lightning(source.tree, source.roles_from) and not source.functions >= {"model", "loss"}


def _parse(source: Source) -> Definition:
    data = called_functions(source.tree, source.roles_from, ("train_data", "validation_data"))
    return lightning_definition(source.tree, source.roles_from, data)


def _reports(definition: Definition, tree: ast.Module, modules: Modules) -> tuple[str, ...] | None:
    return names_in_source({"": tree, **without_program(modules, definition.command)}, heard={"log", "log_dict"})


def _importable(
    tree: ast.Module, roles_from: int, definition: Definition, params: Mapping[str, Value], lengths: Mapping[str, int]
) -> ast.Module:
    return importable(tree, roles_from, definition.given(params))


def _loadable(tree: ast.Module, roles_from: int, definition: Definition) -> ast.Module:
    return importable(tree, roles_from, definition.given({}))


def _gives(tree: ast.Module, roles_from: int, definition: Definition) -> list[str]:
    """Return the model of a cell, its Trainer and callbacks."""
    found = lightning_cell(tree, roles_from)
    fit = found.fit
    owner = fit.func.value if fit is not None and isinstance(fit.func, ast.Attribute) else None
    trainers = [owner.id] if isinstance(owner, ast.Name) else []
    return [*(model_of(fit) if fit is not None else []), *trainers, *callbacks_of(found.trainer)]


LIGHTNING = TrainingForm(
    name="lightning",
    recognises=_recognises,
    parse=_parse,
    training="kernel_backend.runner.forms.lightning.training:LightningTraining",
    framework="lightning",
    loop="Lightning's Trainer takes the steps: leave it out, and write",
    refuses={
        "accumulate": "accumulate_grad_batches=N of the Trainer",
        "batch_size": (
            "the batch size of its DataLoader, which may be an argument of __init__ and is a hyperparameter then"
        ),
        "compile": "self.compile() in configure_model",
        "ema": "a callback such as EMAWeightAveraging",
        "gather_loss": "a loss of what it needs",
        "logical_workers": "nothing: its batches are cut by the number of slots",
        "patience": "the callback EarlyStopping",
        "per_slot_batch": "the global batch size in its DataLoader",
        "rng": "nothing: random numbers follow from seed and step",
        "schedule_per": "interval in what configure_optimizers returns",
        "strategy": "nothing: Lightning trains by a strategy of Daylight's, and each slot has the model",
        "sync_bn": "sync_batchnorm=True of the Trainer, which needs GPUs",
        "validate_every": "val_check_interval or check_val_every_n_epoch of the Trainer",
        "validate_first": "trainer.validate in a hook",
    },
    advice='log it in validation_step, such as self.log("{name}", value)',
    reports=_reports,
    importable=_importable,
    loadable=_loadable,
    model_role="module",
    gives=_gives,
    local=(
        "Run this cell without the line of the magic: it trains here, by itself, where trainer.fit(...) stands in it"
    ),
)
