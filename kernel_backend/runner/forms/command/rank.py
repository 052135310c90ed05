"""Run one rank of a job that is a command line, without importing the user's code or joining a process group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernel_backend.definition.parse import parse, parse_snapshot
from kernel_backend.definition.script.modules import shipped_modules
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.launch.exit_codes import RELEASED
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.snapshot import DEFINITION
from kernel_backend.runner.context import FormTraining
from kernel_backend.runner.data.inputs import Released, with_inputs
from kernel_backend.runner.declared_data import DeclaredDataCheck
from kernel_backend.runner.definition.load import read_snapshot
from kernel_backend.runner.forms.command.training import CommandTraining
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.progress import Progress


def work(
    job: LaunchSpec, instructions: Instructions, spool: Spool, progress: Progress, watch: Callable[[FormTraining], None]
) -> int:
    """Run the job's command as one of its ranks; return the exit code of the rank.

    `watch` is called with the object that trains, once it has been created. `instructions` are received from the
    launcher, and reports are sent to it by `spool`.
    """
    code = Path(job.code)
    snapshot = read_snapshot(code)
    try:
        job = with_inputs(job, snapshot, instructions, spool, progress)
    except Released:
        return RELEASED
    source = (code / DEFINITION).read_text(encoding="utf-8")
    definition = (
        parse_snapshot(source, snapshot, shipped_modules(code, snapshot.project)) if snapshot else parse(source)
    )
    if definition.command is None:
        raise InvalidDefinition(f"this is a definition of the form {definition.form}, and no command")
    training = CommandTraining(job, definition, snapshot, instructions, spool, progress)
    watch(training)
    declared = DeclaredDataCheck(job, snapshot, spool)
    if spool.speaks:
        declared.start()
    try:
        return training.train()
    finally:
        progress.tick("finishing", training.step)
        training.close()
        declared.close()
