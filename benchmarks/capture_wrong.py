"""Count how often a job sees other values than the kernel, with Daylight's capture and with simpler ways to capture.

    python benchmarks/capture_wrong.py --count 1000

Daylight captures the slice: those statements of earlier cells on which the cell depends. The notebooks are the random
ones of `tests.torture.notebooks`, run in a real IPython; a way to capture is wrong if its function returns another
value than the notebook's, or fails.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import cloudpickle
import numpy as np

from jupyter_ext.capture import Cell, capture_cell
from tests.notebooks.kernel import execute, load, shell
from tests.torture.notebooks import Writer, describe


def whole(cells: Sequence[Cell], target: str) -> str:
    """Return all cells that ran to their end, in order."""
    return "\n".join([*(cell.source for cell in cells if cell.error_line is None), target])


def last_definitions(cells: Sequence[Cell], target: str) -> str:
    """Return the source of the cell `target` after the last statements that bind the names it needs."""
    binders: dict[str, ast.stmt] = {}
    for cell in cells:
        try:
            tree = ast.parse(cell.source)
        except SyntaxError:
            continue
        for statement in tree.body:
            names = [
                each.id
                for each in ast.walk(statement)
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            ]
            binders |= dict.fromkeys([*names, getattr(statement, "name", "")], statement)
    needed: list[ast.stmt] = []
    queue = [target]
    while queue:
        for node in ast.walk(ast.parse(queue.pop())):
            found = binders.get(node.id) if isinstance(node, ast.Name) else None
            if found is not None and found not in needed:
                needed.insert(0, found)
                queue.append(ast.unparse(found))
    return "\n".join([*map(ast.unparse, needed), target])


def result_of(source: str) -> object:
    try:
        return describe(load(source)["result"]())  # type: ignore[operator]
    except Exception as error:
        return repr(error)


def run(count: int, seed: int) -> Counter[str]:
    wrong: Counter[str] = Counter()
    for each in range(seed, seed + count):
        cells, wanted = Writer(each).notebook()
        random.seed(0)
        np.random.seed(0)
        kernel = shell()
        recorder = execute(kernel, cells)
        names = [name for name in wanted if name in kernel.user_ns] or ["__name__"]
        target = f"def result(): return [{', '.join(names)}]" if names != ["__name__"] else "def result(): return []"
        kernel.run_cell(target)
        try:
            pickled = cloudpickle.dumps(kernel.user_ns["result"])
        except Exception:
            pickled = b""
        seen = describe(kernel.user_ns["result"]())
        ways = {
            "our slice": capture_cell(recorder.cells, target).source,
            "the cell alone": target,
            "last definition of each name": last_definitions(recorder.cells, target),
            "whole history in order": whole(recorder.cells, target),
        }
        for way, source in ways.items():
            random.seed(0)
            np.random.seed(0)
            wrong[way] += result_of(source) != seen
        try:
            loaded = describe(cloudpickle.loads(pickled)())
        except Exception as error:
            loaded = repr(error)
        wrong["cloudpickle"] += loaded != seen
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    for way, count in run(asked.count, asked.seed).most_common():
        print(f"{way:30} {count:5} of {asked.count} wrong ({100 * count / asked.count:.2f} %)")
    print(f"{time.monotonic() - began:.0f} s")
