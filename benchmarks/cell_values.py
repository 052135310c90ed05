"""Measure what values that come back cost: the look before a cell, and writing and reading them beside torch.save.

The look is that of a notebook of 400 cells and 400 functions, while a job is on its way that sets none of what they
read: median and largest processor time of a cell. 100 MB are a module, its optimizer and an array.

    python benchmarks/cell_values.py
"""

from __future__ import annotations

import io
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from jupyter_ext.job.job import Job
from jupyter_ext.values.awaited import AwaitedValues
from kernel_backend.snapshots.job_values import write
from kernel_backend.snapshots.object_graph import JOB, unpickled

CELLS, ROUNDS = 400, 7
FUNCTION = "def f{0}(x):\n    rows = [x * {0} for _ in range(3)]\n    return f{1}(rows) if x else g{0}\nv{0} = [{0}]"
CELL = "for i in range(10):\n    z{0} = f{0}(v{0})\n    print(z{0}, len(v{0}))\nplot(v{0})"


def look() -> tuple[float, float]:
    """Return the median and the largest time of the look before a cell, in milliseconds."""
    held: dict[str, Any] = {"__name__": "__main__"}
    for number in range(CELLS):
        exec(FUNCTION.format(number, number - number % 4), held)  # chains of four functions
    awaited, client = AwaitedValues(held), object()
    awaited.expect(Job(1, client), client, ["model", "history", "best"], "")  # type: ignore[arg-type]
    times = []
    for number in range(CELLS):
        began = time.process_time()
        awaited.bind_for(CELL.format(number))
        times.append((time.process_time() - began) * 1000)
    return statistics.median(times), max(times)


def both_ways(values: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of writing and reading values together, by torch.save and torch.load and by ours."""
    found: dict[str, list[float]] = {"torch": [], "Daylight": []}
    for _ in range(ROUNDS):
        file, began = io.BytesIO(), time.perf_counter()
        torch.save(values, file)
        file.seek(0)
        torch.load(file, weights_only=False)
        found["torch"].append(time.perf_counter() - began)
        file, began = io.BytesIO(), time.perf_counter()
        write(values, file, 2**30)
        file.seek(0)
        unpickled(file, {}, JOB)
        found["Daylight"].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    """Print both measurements."""
    middle, largest = look()
    print(f"look before a cell, {CELLS} cells: median {middle:.2f} ms, largest {largest:.2f} ms")
    model = nn.Linear(2400, 2400)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2400)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    times = both_ways({"model": model, "optimizer": optimizer, "rows": np.zeros(31 * 2**17)})
    ratio = times["Daylight"] / times["torch"]
    print(f"100 MB written and read: {times['Daylight']:.3f} s, torch {times['torch']:.3f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
