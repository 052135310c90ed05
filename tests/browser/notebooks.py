"""Write notebooks with experiments that run until a test lets them end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

from jupyter_ext.job.job import Job
from kernel_backend.client import Client
from tests.support.world import DEFINITION, World

LOAD = "%load_ext daylight"
# Until the gate is opened, 400 s: longer than a test may take. Few and slow steps, as all that are left are taken, kept
# and drawn once it is.
EPOCHS, PAUSE_S = 80, 0.5  # ten pauses an epoch


class Gate:
    """Gate that holds experiments: they train slowly while it is closed, and end soon after it opens."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        """Open the gate, so that the experiments end."""
        self.path.touch()

    def submit(self, world: World, source: str | None = None, **options: Any) -> int:
        """Submit an experiment that the gate holds, without a notebook, and return its number."""
        slow = {"slots": 1, "epochs": EPOCHS, "pause": PAUSE_S}
        return world.submit(source or self.definition, **(slow | options)).experiment.number

    @property
    def slow_start(self) -> str:
        """Return the source of a small experiment whose data is read once the gate opens."""
        wait = f"    while not os.path.exists({str(self.path)!r}): time.sleep(0.1)\n"
        return self.definition.replace("def dataset(samples=64):\n", f"def dataset(samples=64):\n{wait}")

    @property
    def definition(self) -> str:
        """Return the source of the small experiment that this gate holds."""
        slow = "time.sleep(pause)"
        assert slow in DEFINITION
        hurry = f"time.sleep(0 if os.path.exists({str(self.path)!r}) else pause)"
        return "import os\n" + DEFINITION.replace(slow, hurry).lstrip()


def submitting(definition: str, options: str = "", params: str = f"pause={PAUSE_S}") -> str:
    """Return a cell that submits a definition, on one slot."""
    line = f"%%dlsubmit --again --slots 1 --epochs {EPOCHS} --batch-size 8 --threads 1 {options} {params}"
    return f"{line.rstrip()}\n{definition.strip()}"


def write(path: Path, *cells: str, output: dict[str, Any] | None = None) -> str:
    """Write a notebook of code cells, and return its name; `output` is a bundle that the last cell already shows."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"},
            "language_info": {"name": "python"},  # else JupyterLab adds it, and the notebook counts as changed
        },
    )
    if output is not None:
        notebook.cells[-1].outputs = [nbformat.v4.new_output("display_data", data=output)]
    nbformat.write(notebook, path)
    return path.name


def kept(world: World, number: int) -> dict[str, Any]:
    """Return the bundle that a notebook saves of an experiment's current state."""
    return Job(number, Client.connect(start=False, home=world.home))._repr_mimebundle_()
