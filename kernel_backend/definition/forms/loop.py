"""Describe the form loop: a function `train(run, ...)` with a loop of its own."""

from __future__ import annotations

import ast

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.form import Modules, Source, TrainingForm
from kernel_backend.definition.loop_form import is_train, loop_definition
from kernel_backend.definition.reported.source import names_in_source
from kernel_backend.definition.script.modules import without_program


def _recognises(source: Source) -> bool:
    return any(map(is_train, source.cell))


def _parse(source: Source) -> Definition:
    return loop_definition(source.tree, source.roles_from)


def _reports(definition: Definition, tree: ast.Module, modules: Modules) -> tuple[str, ...] | None:
    return names_in_source({"": tree, **without_program(modules, definition.command)}, heard={"report"})


LOOP = TrainingForm(
    name="loop",
    recognises=_recognises,
    parse=_parse,
    training="kernel_backend.runner.forms.loop:LoopTraining",
    loop="train(run, ...) takes its steps itself: leave it out, and write there",
    refuses={
        "accumulate": "several backward() before an optimizer.step()",
        "amp": "with torch.autocast(run.device.type):",
        "clip": "nn.utils.clip_grad_norm_(net.parameters(), 1.0) after backward()",
        "compile": "net.compile()",
        "ema": "torch.optim.swa_utils.AveragedModel, registered by run.restore(average=...)",
        "gather_loss": "a loss of what it needs",
        "logical_workers": "nothing: its batches are cut by the number of slots",
        "schedule_per": "schedule.step(), called where you want it",
        "strategy": "nothing: each slot has the model",
        "sync_bn": "nothing: its BatchNorm has the statistics of each slot's samples",
        "validate_every": "its validation, called where you want it",
        "validate_first": "its validation, called before the loop too",
    },
    reports=_reports,
    script=(
        "train(run, ...) restarts, reads its data and reports by run, which a plain script does not have. Write there "
        "a DataLoader in place of run.loader, range in place of run.epochs and run.steps, and print in place of "
        "run.report; without a service train(run) runs in a cell as it is"
    ),
)
