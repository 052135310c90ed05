"""Record settings of the notebook's process that affect results.

The job sets some of them itself, and compares the others with its own.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from jupyter_ext.capture import Capture
from kernel_backend.model.launch.launch_spec import OF_RANKS
from kernel_backend.model.snapshot import Process
from kernel_backend.secret_scan import find_secrets, is_secret, known_secrets
from kernel_backend.snapshots.environment import numerics_variables
from kernel_backend.snapshots.process import SETTINGS, cell_of, process
from kernel_backend.snapshots.random_states import random_digests

# Set by Jupyter, and by launchers for their ranks: always different in a job.
_OTHERS = re.compile(
    r"MPLBACKEND|COLUMNS|LINES|TERM|G?I?T?_?PAGER|CLICOLOR\w*|FORCE_COLOR|PYDEVD\w*|(?:JPY|JUPYTER|IPY)\w*"
    r"|(?:OMP|MKL)_NUM_THREADS|CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|DAYLIGHT_\w+|PWD|OLDPWD|PYTHONHASHSEED"
)
_ALWAYS = {"TZ", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"}  # affect any computation


def notebook_process(capture: Capture, files: Mapping[str, bytes]) -> Process:
    """Return the process settings that differ from their defaults, except those that the submission sets itself.

    Leaves out settings of libraries that the submission does not import, environment variables that neither its code
    nor the `files` sent with it mention, and secrets.
    """
    cell = cell_of(capture.source, capture.roles_from)
    code = "\n".join(
        [capture.source, *(data.decode(errors="replace") for name, data in files.items() if name.endswith(".py"))]
    )
    changed = dict(_changed_variables(code))
    found = process(changed)
    return Process(
        settings={
            name: value
            for name, value in found.settings.items()
            if value != (setting := SETTINGS[name]).begins
            and (setting.concerns_all or setting.library in capture.packages)
            and not setting.is_set_in(cell)
        },
        variables=found.variables,
        random=random_digests(capture.draws_from),
        replaced={
            path: value
            for path, value in found.replaced.items()
            if path.partition(".")[0] in {"torch", *capture.packages}
        },
    )


def _changed_variables(code: str) -> Iterator[tuple[str, str | None]]:
    """Yield environment variables that changed since this process started, with their values; None if deleted.

    Only those are yielded that `code` names in quotes or that affect libraries' results, and no secrets.
    """
    known, before = known_secrets(), _at_the_start()
    for name in sorted(before.keys() | os.environ.keys()):
        value = os.environ.get(name)
        if value == before.get(name) or _OTHERS.fullmatch(name) or OF_RANKS.fullmatch(name):
            continue
        matters = name in _ALWAYS or numerics_variables({name: ""}) or re.search(rf"(['\"]){re.escape(name)}\1", code)
        if matters and not is_secret(name, value) and not find_secrets(f"{name} = {value!r}", known):
            yield name, value


def _at_the_start() -> dict[str, str]:
    """Return the environment variables with which this process was started; the current ones if those are unknown."""
    with contextlib.suppress(OSError):
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
        pairs = [os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry]
        if pairs:
            return {name: value for name, _, value in pairs}
    return dict(os.environ)
