"""Submit programs by `daylight submit ... -- COMMAND`, like a user in a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from kernel_backend.cli import main
from tests.support.world import World

DAYLIGHT = str(Path(sys.executable).with_name("daylight"))


def daylight(
    world: World, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a home; `env` has additional variables."""
    variables = {**world.environment, **(env or {})}
    return subprocess.run([DAYLIGHT, *words], cwd=cwd or world.home, env=variables, capture_output=True, text=True)


def submit_program(world: World, folder: Path, source: str, *line: str, env: Mapping[str, str] | None = None) -> int:
    """Write `train.py` with this source into a folder, submit a command line from there, and return the number.

    The command runs in this process, which has imported all of it already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(source)
    printed, said = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, {**world.environment, **(env or {})}),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(said),
    ):
        code = main(["submit", "--json", "--threads=1", *line])
    assert code == 0, said.getvalue()
    number: int = json.loads(printed.getvalue())["experiment"]["number"]
    return number
