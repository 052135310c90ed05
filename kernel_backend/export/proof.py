"""Prove an exported folder: load it in a fresh process without Daylight, and compare its outputs with the recorded."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

from kernel_backend.errors import InvalidRequest
from kernel_backend.export.portable.check import said

# Daylight is not to be imported, nor the project's modules from where they are developed.
_PROGRAM = """
import sys, runpy
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kernel_backend", "jupyter_ext", "daylight"):
            raise ModuleNotFoundError(f"{name} is not there: an exported model must do without it", name=name)
sys.meta_path.insert(0, Blocked())
folder = sys.argv[1]
sys.argv = ["check.py", "--json"]
sys.dont_write_bytecode = True
runpy.run_path(f"{folder}/check.py", run_name="__main__")
"""


class NotProven(InvalidRequest):
    """Error: a fresh process cannot load the exported model, or computes something else; the message says what."""


class Proof(NamedTuple):
    """Result of a check: how many output values were compared, their largest difference, and what was imported."""

    compared: int
    difference: float
    programs: dict[str, float]  # the same of programs for other runtimes, by the name of their file
    distributions: tuple[str, ...]  # names of the imported distributions
    files: tuple[str, ...]  # imported files of the folder, relative to it

    @property
    def text(self) -> str:
        """Return the result in words: `bit-equal on 256 outputs`."""
        return said(self.compared, self.difference, self.programs)


def prove(folder: Path) -> Proof:
    """Load the model of a folder in a fresh Python process and compare its outputs with `expected.safetensors`.

    Raises NotProven, with the first output that differs, or the error with which the model does not load.
    """
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _PROGRAM, str(folder)],
            capture_output=True,
            text=True,
            cwd=elsewhere,
            check=False,
        )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise NotProven(f"in a process of its own: {lines[-1] if lines else f'exit code {done.returncode}'}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return Proof(
        found["compared"],
        found["difference"],
        found["programs"],
        tuple(_distributions(found["modules"])),
        tuple(_within(found["modules"], folder)),
    )


def _distributions(modules: Mapping[str, str | None]) -> list[str]:
    """Return the distributions to which imported modules belong, in order of their names."""
    tops = {name.partition(".")[0] for name in modules}
    known = packages_distributions()
    return sorted({each for top in tops for each in known.get(top, ()) if top not in sys.stdlib_module_names})


def _within(modules: Mapping[str, str | None], folder: Path) -> list[str]:
    files = (Path(file).resolve() for file in modules.values() if file)
    return sorted({str(each.relative_to(folder.resolve())) for each in files if each.is_relative_to(folder.resolve())})
