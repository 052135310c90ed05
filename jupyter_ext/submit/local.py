"""Train a prepared submission in this process (`--local`), without a service, for example to debug it."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from jupyter_ext.submit.submit import ParsedLine, PreparedSubmission, describe
from kernel_backend.definition.command_line import Command
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.definition.script.definition import Written, with_values
from kernel_backend.definition.script.modules import project_modules
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import Share
from kernel_backend.model.snapshot import Project
from kernel_backend.model.syntax import module_tree
from kernel_backend.snapshots.archive import pack_snapshot, unpack
from kernel_backend.text.terminal import tell

# Folder of the newest local training: tracebacks and debuggers read its source after a failure.
_newest: list[tempfile.TemporaryDirectory[str]] = []


def train_locally(checked: PreparedSubmission, asked: ParsedLine) -> Any:
    """Train in this process, print the metrics, and return the trained model, or several by name.

    Raises InvalidRequest for options that need a job, and the user's own errors.
    """
    config = checked.config
    given = {
        f"--slots {config.slots}": config.slots > 1,
        "--search": config.search is not None or bool(checked.space.parameters),
        "--from": config.weights_from is not None,
        "--await-evaluation": config.await_evaluation,
        "--env locked": config.env != "current",
        "--max-time": config.max_time is not None,
        "--batch-size auto": config.auto_batch is not None,
        "--pool": config.pool is not None,
        "--group": config.group is not None,
        "--preemptible": config.preemptible,
        **{f"--data {each.name}": bool(each.mapped) for each in checked.declared.data},  # its folder is the user's own
    }
    if flag := next((flag for flag, is_given in given.items() if is_given), None):
        raise InvalidRequest(f"--local trains once, in this process: leave {flag} out, or leave --local out")
    form = form_named(checked.definition.form)
    if form.whole:
        return _run(checked)
    import torch  # imported here, as a kernel that only submits does not need it

    from kernel_backend.runner.in_process import train_in_process

    if form.local:
        raise InvalidRequest(f"--local trains functions, train(run, ...) and a Trainer. {form.local}")
    folder = tempfile.TemporaryDirectory(prefix="daylight-local-")
    _newest[:] = [folder]
    root = Path(folder.name)
    id, data = pack_snapshot(checked.capture.source, describe(checked), checked.files)
    unpack(data, root / "code")
    kind = "cuda" if torch.cuda.is_available() and config.device == "auto" else "cpu"
    tell(f"{checked.definition.summary} -> in this process, on {kind}; nothing is sent or kept")
    job = LaunchSpec(
        experiment=1,
        trial=1,
        attempt=1,
        config=config.model_copy(update={"threads": config.threads or torch.get_num_threads()}),
        params=checked.params,
        placement=(Share(node="here", kind=kind, address="127.0.0.1", slots=(0,)),),
        python=sys.executable,
        cwd=os.getcwd(),
        code=str(root / "code"),
        snapshot=id,
        checkpoints=str(root / "checkpoints"),
        home=str(root / "home"),
    )
    return train_in_process(job, root, tell)


def _run(checked: PreparedSubmission) -> dict[str, Any]:
    """Run a program in this process with the submission's values; return its torch modules by variable name."""
    import torch

    summary = checked.capture.relocate(checked.definition.summary)
    tell(f"{summary} -> in this process, as it is; nothing is sent or kept")
    travelling, command = checked.travelling, checked.definition.command
    modules = project_modules(travelling.files, travelling.project)
    written = with_values(module_tree(checked.capture.source), modules, checked.params, checked.config.epochs)
    main = ModuleType("__main__")
    if command is None or travelling.project is None:
        exec(compile(written.tree, "program.py", "exec", dont_inherit=True), vars(main))
    else:
        _run_command(written, command, travelling.project, main)
    return {name: each for name, each in vars(main).items() if isinstance(each, torch.nn.Module)}


def _run_command(written: Written, command: Command, project: Project, main: ModuleType) -> None:
    """Run the program of a command in the namespace of `main`, as `python train.py` runs it.

    `written` is the program with hyperparameters written into it. A `sys.exit()` without an error ends it normally.
    """
    from kernel_backend.runner.forms.script.start import Start

    assert command.program is not None
    file, name = Path(project.root, command.program), command.words[command.arguments - 1]
    if command.module:
        start = Start(file, [str(file), *written.arguments], [Path.cwd()], module=name)
    else:
        start = Start(file, [name, *written.arguments], [file.parent])
    vars(main)["__file__"] = str(file)
    with start.throughout(main):
        try:
            exec(compile(written.tree, str(file), "exec", dont_inherit=True), vars(main))
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
