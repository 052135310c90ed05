"""Describe the form script: a cell or program with a training loop that Daylight runs statement by statement."""

from __future__ import annotations

import ast

from kernel_backend.definition.aliases import role_of
from kernel_backend.definition.contract import REQUIRED, Definition
from kernel_backend.definition.form import Modules, Source, TrainingForm
from kernel_backend.definition.reported.source import names_in_source
from kernel_backend.definition.script.defined import definitions, set_by_cell
from kernel_backend.definition.script.definition import is_script, script_definition
from kernel_backend.definition.script.loops import training_loops, training_statements
from kernel_backend.definition.script.modules import without_program
from kernel_backend.definition.unused import names_used
from kernel_backend.model.experiment import Config
from kernel_backend.model.search.registry import method_of


def _recognises(source: Source) -> bool:
    """Return True for a cell with a training loop, if it lacks a function that the form "functions" requires.

    A function that the cell's own code calls is a helper of its training loop. Of commands, all are scripts that have
    not the form command.
    """
    if source.command is not None:
        return True
    roles = {role_of(name) or name for name in source.functions - names_used(source.tree)}
    return not roles >= set(REQUIRED) and is_script(source.tree, source.roles_from, source.modules)


def _parse(source: Source) -> Definition:
    return script_definition(source.tree, source.modules)


def _reports(definition: Definition, tree: ast.Module, modules: Modules) -> tuple[str, ...] | None:
    others = without_program(modules, definition.command)
    begin = min((each.lineno for each in training_statements(tree)), default=0)
    return names_in_source({"": tree, **others}, training_loops(tree, others), begin=begin)


def _deferred(tree: ast.Module, roles_from: int) -> ast.Module:
    return tree


def _loadable(tree: ast.Module, roles_from: int, definition: Definition) -> ast.Module:
    return definitions(tree)


def _counts_epochs(definition: Definition, config: Config) -> str | None:
    search = config.search
    units = definition.rounds if search else None
    if definition.epochs_fixed and config.epochs != (units or Config.model_fields["epochs"].default):
        return (
            f"--epochs {config.epochs} cannot be given to this program: {definition.epochs_fixed}. Write "
            "`for epoch in range(epochs)` with epochs = 10 above it, or leave --epochs out"
        )
    if config.search is not None and config.search.method == "pbt":
        return (
            "--search pbt gives a trial other values while it trains, and a program goes on with those that it has: "
            "search with asha or hyperband"
        )
    if (
        definition.epochs_fixed
        and units is None
        and search
        and (search.learns or method_of(search.method).judged != "end")
    ):
        return (
            f"--search {search.method} decides by the epochs of its trials: {definition.epochs_fixed}. Write "
            "`for epoch in range(epochs)` with epochs = 10 above it, or search with random"
        )
    return None


def _gives(tree: ast.Module, roles_from: int, definition: Definition) -> list[str]:
    return set_by_cell(tree, roles_from)


SCRIPT = TrainingForm(
    name="script",
    recognises=_recognises,
    parse=_parse,
    training="kernel_backend.runner.forms.script.training:ScriptTraining",
    loop="the program's own loop takes the steps: leave it out, and write there",
    refuses={
        "accumulate": "several backward() before an optimizer.step()",
        "amp": 'with torch.autocast("cuda"): around the forward pass',
        "batch_size": "the batch size of its DataLoader: a name such as batch_size = 64 can be given on the line",
        "clip": "nn.utils.clip_grad_norm_(model.parameters(), 1.0) after backward()",
        "compile": "model.compile()",
        "ema": "torch.optim.swa_utils.AveragedModel",
        "gather_loss": "nothing: the loss is that of the whole batch on any number of slots",
        "loader_workers": "num_workers=N of its DataLoader",
        "logical_workers": "nothing: every slot runs the whole program on the whole batch",
        "patience": "break where the loop is to end: what the loop counts is in its checkpoints",
        "per_slot_batch": "the size of the whole batch in its DataLoader",
        "rng": "nothing: random states are in the checkpoints",
        "schedule_per": "schedule.step(), called where you want it",
        "seed": "torch.manual_seed(seed) with seed = 0 above it, and give seed=1 on the line",
        "strategy": "nothing: each slot has the model",
        "sync_bn": "nothing: its BatchNorm has the statistics of the whole batch on any number of slots",
        "steps": "a loop of so many steps: a name such as max_steps = 1000 can be given on the line",
        "uneven": "drop_last=True of its DataLoader",
        "validate_every": "its validation, called where you want it",
        "validate_first": "its validation, called before the loop too",
        "weights_from": "model.load_state_dict(...) above the loop",
    },
    rules=(_counts_epochs,),
    advice='print it after each epoch, such as print(f"{name}: {value}")',
    reports=_reports,
    programs=True,
    deferred=_deferred,
    whole=True,
    loadable=_loadable,
    gives=_gives,
    script="this is a plain program as it stands: leave the magic out to run it here",
)
