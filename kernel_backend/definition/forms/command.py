"""Describe the form command: a program that is started as it is, in processes of its own."""

from __future__ import annotations

from kernel_backend.definition.command.choice import own_process
from kernel_backend.definition.command.definition import command_definition
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.form import Source, TrainingForm

# Settings that a program makes itself, or by its own options.
_OF_PROGRAM = (
    "accumulate", "amp", "await_evaluation", "batch_size", "clip", "compile", "ema", "gather_loss", "loader_workers",
    "logical_workers",
    "patience", "per_slot_batch", "rng", "schedule_per", "strategy", "sync_bn", "uneven", "until", "validate_every",
    "validate_first", "weights_from",
)  # fmt: skip


def _recognises(source: Source) -> bool:
    """Return True for a command whose training loop Daylight cannot run itself."""
    command = source.command
    return command is not None and own_process(source.tree, command, source.modules) is not None


def _parse(source: Source) -> Definition:
    return command_definition(source.tree, source.modules)


COMMAND = TrainingForm(
    name="command",
    recognises=_recognises,
    parse=_parse,
    training="kernel_backend.runner.forms.command.training:CommandTraining",
    loop="a command trains in its own way: leave it out, and use",
    refuses=dict.fromkeys(_OF_PROGRAM, "an option of the program"),
    fixed_slots="the program divides its work by the number of its processes",
    advice="report it, such as run.log({metric}) of `from daylight import run`",
    programs=True,
    local="Run this program without Daylight: it is started as it is",
    script="this is a plain program as it stands: run it without Daylight",
)
