"""Run a notebook of `binder/` in a real kernel, printing what its cells print, as they print it.

python scripts/demo.py [FOLDER] [NAME]     uses FOLDER (build) for a fresh DAYLIGHT_HOME, and leaves nothing running

The executed notebook is saved as FOLDER/NAME.executed.ipynb; NAME is quickstart where none is given.
Exit code 1, with the error, where a cell failed.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import psutil
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "binder"
SHOWN = 4  # lines of a cell's source


class Narrator(NotebookClient):
    """Notebook client that prints each cell's first lines, then its output as it arrives."""

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Print the text of a message of the kernel, then handle it as always."""
        content = msg["content"]
        if msg["msg_type"] == "stream":
            print(content["text"], end="", flush=True)
        elif msg["msg_type"] in ("display_data", "execute_result"):
            print(content["data"].get("text/plain", ""), flush=True)
        return super().process_message(msg, cell, cell_index)


def introduce(cell: Any, cell_index: int) -> None:
    """Print a text of the notebook, or the first lines of a cell that is about to run."""
    lines = cell.source.strip().splitlines()
    if cell.cell_type == "markdown":
        print(f"\n{cell.source.strip()}", flush=True)
        return
    more = [f"... ({len(lines) - SHOWN} more lines)"] if len(lines) > SHOWN else []
    print("", *(f">>> {line}" for line in lines[:SHOWN] + more), sep="\n", flush=True)


def run(notebook: Any) -> str | None:
    """Execute all cells; return None, or the error of the cell that failed."""
    client = Narrator(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOKS)}},
        on_cell_start=introduce,
        startup_timeout=180,
        iopub_timeout=60,  # what a cell prints last may come late
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    )
    try:
        client.execute()
    except CellExecutionError as error:
        return str(error)
    return None


def belongs_to(home: Path, process: psutil.Process) -> bool:
    """Return True for a process that was started with this DAYLIGHT_HOME, such as the service, a launcher or a rank."""
    try:
        return process.pid != os.getpid() and process.environ().get("DAYLIGHT_HOME") == str(home)
    except psutil.Error:
        return False


def end_all(home: Path) -> None:
    """End the service of this home, and after a failure its other processes too."""
    mine = [process for process in psutil.process_iter() if belongs_to(home, process)]
    for process in mine:
        process.terminate()
    for process in psutil.wait_procs(mine, timeout=10)[1]:
        process.kill()


def main(folder: Path, name: str = "quickstart") -> int:
    """Run the notebook, save it, and end the processes that it started."""
    home, executed = folder / "demo", folder / f"{name}.executed.ipynb"
    end_all(home)
    shutil.rmtree(home, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    # The kernel, its service and their workers inherit these: a home of its own, and this very interpreter.
    # Two CPU slots wherever it runs, so that it shows the same on a laptop and on a machine with one GPU.
    os.environ.update(DAYLIGHT_SLOTS="2", CUDA_VISIBLE_DEVICES="")
    os.environ.update(DAYLIGHT_HOME=str(home), PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    try:
        error = run(notebook)
    finally:
        end_all(home)
        nbformat.write(notebook, executed)
    if error:
        print(f"\n{error}\nThe demo failed; what ran is in {executed}", file=sys.stderr)
        return 1
    print(f"\nExecuted notebook: {executed}. To run it yourself: make lab")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "build", *sys.argv[2:3]))
