"""How long a cell's capture takes by the length of the history, beside cloudpickle of the same functions.

    python benchmarks/capture_time.py

Cold is with every cell parsed anew; warm is what a submit costs, as cells are parsed when they have run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import cloudpickle

from jupyter_ext.capture import capture_cell
from jupyter_ext.capture.statements import analyse


def history(count: int) -> list[str]:
    """Cells as people write them: an import, values, a helper that calls others, and calls of it."""
    cells = []
    for i in range(count):
        body = "\n".join(f"    t{k} = helper_{i - i % 5}(x, {k}) + cfg['a'] if x else {k}" for k in range(8))
        cells.append(
            f"import math\nv{i} = {i}\ncfg = {{'a': v{i}}}\ncfg['b'] = {i}\n"
            f"def helper_{i}(x, k=v{i}):\n{body}\n    return k\n"
            f"r{i} = helper_{i}(0, 2)\nxs{i} = [r{i} for _ in range(3)]"
        )
    return cells


def best(work: Callable[[], object]) -> float:
    """Milliseconds of CPU, the least of five."""
    times = []
    for _ in range(5):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return 1000 * min(times)


if __name__ == "__main__":
    print("cells   cold ms   warm ms   cloudpickle ms")
    for count in (10, 50, 100, 200, 400, 800):
        cells, target = history(count), f"def model(): return helper_{count - 1}(1)"

        def cold(cells: list[str] = cells, target: str = target) -> None:
            analyse.cache_clear()
            capture_cell(cells, target)

        namespace: dict[str, object] = {"__name__": "__main__"}
        for cell in [*cells, target]:
            exec(cell, namespace)
        figures = [
            best(cold),
            best(lambda c=cells, t=target: capture_cell(c, t)),
            best(lambda n=namespace: cloudpickle.dumps(n["model"])),
        ]
        print(f"{count:5}   {figures[0]:7.0f}   {figures[1]:7.0f}   {figures[2]:7.2f}")
