"""Run notebooks from top to bottom, plainly and with nothing but a magic's line added: all later outputs are equal.

python -m tests.torture.run_all [--kill] [NAME ...]

With `--kill` a rank of a job is killed at a random instant of its first seconds, but for cells that are run as they
are: these are not begun again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import psutil
from nbclient import NotebookClient

from jupyter_ext.values.awaited import MARK
from tests.support import forked_kernels
from tests.support.world import World

FOLDER = Path(__file__).parents[1] / "notebooks" / "run_all"
MAGICS = {"submit": "%%dlsubmit --threads 1 --no-wait", "run": "%%dlrun --no-wait"}
_VARYING = re.compile(r"^(?:CPU times|Wall time): .*\n?|(?<= at )0x[0-9a-f]+", re.MULTILINE)  # %%time, addresses
_PATIENCE = {"timeout": 400, "startup_timeout": 240, "iopub_timeout": 60}


class Part(NamedTuple):
    """One cell of a notebook: its source, and the magic that is added above it, with options; "" for none."""

    source: str
    magic: str


def parts_of(text: str) -> list[Part]:
    """Return the cells of a notebook in the percent format; `# %% submit --slots 2` marks one that is submitted."""
    found = []
    for block in text.split("# %%")[1:]:
        first, _, source = block.partition("\n")
        kind, _, options = first.strip().partition(" ")
        found.append(Part(source.strip(), f"{MAGICS[kind]} {options}".strip() if kind else ""))
    return found


def executed(parts: Sequence[Part], submits: bool, folder: Path, environment: Mapping[str, str]) -> list[Any]:
    """Run a notebook in a kernel of its own, with the magics if it `submits`, and return what each cell has shown.

    The outputs of cells that are submitted are left out: theirs are in the job's log.
    """
    sources = [f"{each.magic}\n{each.source}" if submits and each.magic else each.source for each in parts]
    first = "import torch\ntorch.set_num_threads(1)" + "\n%load_ext daylight" * submits
    cells = [nbformat.v4.new_code_cell(source) for source in [first, *sources]]
    notebook = nbformat.v4.new_notebook(cells=cells)
    folder.mkdir(parents=True)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
        **_PATIENCE,
    )
    client.execute(env={**os.environ, **environment, "DAYLIGHT_HEADLESS": "0"})
    if errors := [each for cell in cells for each in shown(cell) if not submits and "error" in each]:
        raise ValueError(f"{folder.parent.name} fails without the magic already: {errors}")
    return [[] if part.magic else shown(cell) for part, cell in zip(parts, notebook.cells[1:], strict=True)]


def shown(cell: Any) -> list[Any]:
    """Return what a cell has shown besides Daylight's own lines: printed text, values and pictures by their data."""
    found: list[Any] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            if output.name == "stdout" and found and isinstance(found[-1], str):  # a frontend joins them, too
                found[-1] += _VARYING.sub("", output.text)
            elif output.name == "stdout":
                found.append(_VARYING.sub("", output.text))
        elif output.output_type == "error":
            found.append({"error": f"{output.ename}: {output.evalue}"})
        elif MARK not in output.get("metadata", {}):
            found.append({**output.data, "text/plain": _VARYING.sub("", output.data.get("text/plain", ""))})
    return found


def differences(path: Path, folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Return how the later outputs of a notebook differ if one of its cells is submitted; empty if they are equal."""
    parts = parts_of(path.read_text())
    plain = executed(parts, False, folder / "plain", environment)
    submitted = executed(parts, True, folder / "submitted", environment)
    return [
        f"cell {number} shows {there!s:.300} and plainly {here!s:.300}"
        for number, (here, there) in enumerate(zip(plain, submitted, strict=True), 1)
        if here != there
    ]


@contextlib.contextmanager
def killed_once(world: World, at_most: float = 1.5) -> Iterator[list[int]]:
    """Kill one rank within its first seconds, in the `with` block; the list gets its process ID when that is done."""
    killed, over = list[int](), threading.Event()

    def kill() -> None:
        while not killed and not over.wait(0.05):
            for pid, process in world.ranks().items():
                over.wait(random.uniform(0, at_most))
                with contextlib.suppress(psutil.Error):
                    process.kill()
                    killed.append(pid)
                break

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def main() -> int:
    """Run the notebooks that are named, or all; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kill", action="store_true")
    options = parser.parse_args()
    paths = [path for path in sorted(FOLDER.glob("*.py")) if not options.names or path.stem in options.names]
    if options.kill:
        paths = [
            path for path in paths if all(not each.magic.startswith("%%dlrun") for each in parts_of(path.read_text()))
        ]
    wrong = kills = 0
    with tempfile.TemporaryDirectory() as temporary:
        world = World(Path(temporary) / "home", shared_forkserver=True)
        forked_kernels.write_kernelspec(Path(temporary) / "kernels", world.home)
        os.environ["JUPYTER_PATH"] = str(Path(temporary) / "kernels")
        world.serve()
        try:
            for path in paths:
                with killed_once(world) if options.kill else contextlib.nullcontext([]) as killed:
                    found = differences(path, Path(temporary) / path.stem, world.environment)
                wrong += bool(found)
                kills += len(killed)
                print(f"{path.stem:24} {'; '.join(found) or 'equal'}", flush=True)
        finally:
            world.close()
    after = f", after {kills} kills" * options.kill
    print(f"{len(paths) - wrong} of {len(paths)} notebooks show the same with the magic's line as without it{after}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
