"""Set the environment variables of a command's process: those of common launchers and those of Daylight."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_backend.artifacts.program import CHECKPOINTS, FOLDER, METRICS, PARAMS, messages_file
from kernel_backend.definition.command_line import PYTHON, Command
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.snapshot import PROJECT
from kernel_backend.runner.definition.trackers import SILENT


def launcher_env(base: Mapping[str, str], job: LaunchSpec) -> dict[str, str]:
    """Return the environment variables that torchrun and DeepSpeed set for a rank, such as GROUP_RANK.

    Variables that `base`, the rank's own environment, always has, such as RANK, are left out.
    """
    rank, size = base.get("RANK", "0"), base.get("WORLD_SIZE", "1")
    sizes = [len(share.slots) for share in job.placement]
    node = next(index for index in range(len(sizes)) if int(rank) < sum(sizes[: index + 1]))
    return {
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(len(sizes)),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "TORCHELASTIC_RUN_ID": f"daylight-{job.id}",
        "TORCHELASTIC_RESTART_COUNT": str(job.attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(job.config.max_restarts),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "LOCAL_SIZE": base.get("LOCAL_WORLD_SIZE", "1"),
        "CROSS_RANK": str(node),
        "CROSS_SIZE": str(len(sizes)),
    }


def program_env(
    base: Mapping[str, str], job: LaunchSpec, folder: Path, checkpoints: Path, paths: Sequence[Path], python: str
) -> dict[str, str]:
    """Return all environment variables for the program of a rank, including those of `base`, the rank's environment.

    `folder` is where the program and its rank exchange messages; `checkpoints` is the program's checkpoint folder. The
    folders `paths` come first on `PYTHONPATH`, and the folder of the interpreter `python` comes first on `PATH`.
    """
    rank = int(base.get("RANK", "0"))
    found = [*map(str, paths), *filter(None, [base.get("PYTHONPATH")])]
    return {
        **base,
        **launcher_env(base, job),
        **(SILENT if rank else {}),
        "PATH": os.pathsep.join([str(Path(python).parent), base.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(found),
        CHECKPOINTS: str(checkpoints),
        FOLDER: str(folder),
        METRICS: str(folder / messages_file(rank)),
        PARAMS: json.dumps(job.values),
    }


def argv(command: Command, job: LaunchSpec, checkpoints: Path, python: str) -> list[str]:
    """Return the command as a list of arguments, with its placeholders for hyperparameters and `checkpoints` filled in.

    `checkpoints` is the program's checkpoint folder. The path of the program becomes that of its copy in the snapshot,
    and a first argument `python` becomes the path of the job's interpreter, which the parameter `python` has.
    """
    words = command.filled(job.values, str(checkpoints))
    if command.at is not None and command.program is not None:
        words[command.at] = str(Path(job.code) / PROJECT / command.program)
    if words[0] != PYTHON:
        return words
    # Otherwise modules of the working folder would take precedence over those of the snapshot.
    return [python, *(["-P"] if command.module else []), *words[1:]]
