"""Submit programs by `daylight submit ... -- COMMAND`, like a user in a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.world import World

DAYLIGHT = str(Path(sys.executable).with_name("daylight"))


def daylight(
    world: World, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a home; `env` has additional variables."""
    variables = {**world.environment, **(env or {})}
    return subprocess.run([DAYLIGHT, *words], cwd=cwd or world.home, env=variables, capture_output=True, text=True)


def submit_program(world: World, folder: Path, source: str, *line: str, env: Mapping[str, str] | None = None) -> int:
    """Write `train.py` with this source into a folder, submit a command line from there, and return the number."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(source)
    done = daylight(world, "submit", "--json", "--threads=1", *line, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    number: int = json.loads(done.stdout)["experiment"]["number"]
    return number
