"""Measure the time to capture a cell's code, by the number of cells run before, beside cloudpickle of its functions.

    python benchmarks/capture_time.py

Cold: every cell is parsed anew. Warm: all cells were parsed when they ran, as before every submission.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import cloudpickle

from jupyter_ext.capture import capture_cell
from jupyter_ext.capture.statements import analyse


def history(count: int) -> list[str]:
    """Return the cells of a synthetic notebook, 11 lines each on average.

    Of 10 cells, 2 display something, 3 set values (8 lines), 3 define helpers (10), 1 loops (14) and 1 is a class of 40
    lines. Each calls an earlier helper; calls are nested three deep.
    """
    makers = [look, settings, helper, helper, settings, loop, look, settings, helper, layers]
    return ["import math\ncfg = {'a': 1}\n" + helper(0), *(makers[i % 10](i) for i in range(1, count))]


def look(i: int) -> str:
    return f"# how far are we?\nprint(sorted(cfg), helper_{last(i)}(1))"


def settings(i: int) -> str:
    lines = [f"# run {i}", f"v{i} = {i}", f"cfg['b'] = v{i}", f"names{i} = ['a', 'b', str(v{i})]"]
    lines += [f"rate{i} = 0.1 if v{i} > 3 else cfg['a']", f"xs{i} = [rate{i} * k for k in range(3)]"]
    return "\n".join([*lines, f"best{i} = max(xs{i})", f"print(f'{{best{i}}} of {{len(names{i})}}')"])


def helper(i: int) -> str:
    lines = [f"def helper_{i}(x, k={i}):", '    """Adds up what is near."""', "    total = math.sqrt(abs(x))"]
    lines += ["    for step in range(3):", "        if step < 2:", f"            total += step * cfg['a'] + {i}"]
    lines += ["        else:", f"            total -= {f'helper_{last(i)}(0, step)' if i % 10 in (3, 8) else 'k'}"]
    return "\n".join([*lines, "    kept = {'total': total, 'k': k}", "    return kept['total']"])


def loop(i: int) -> str:
    lines = [f"losses{i} = []", f"state{i} = {{'step': 0}}", "for epoch in range(3):", "    seen = 0"]
    lines += [
        "    for batch in range(4):",
        f"        loss = helper_{last(i)}(batch) / (epoch + 1)",
        "        seen += 1",
    ]
    lines += ["        if loss > 1e9:", "            break", f"        losses{i}.append(loss)"]
    lines += [f"    state{i}['step'] += seen", f"    cfg['last'] = losses{i}[-1]", "    if epoch == 2:"]
    return "\n".join([*lines, f"        print(f'{{epoch}}: {{losses{i}[-1]:.3f}}')"])


def layers(i: int) -> str:
    lines = [f"class Model{i}:", f'    """The {i}th try."""', "", "    width = 8", ""]
    for name in "abcdefg":
        lines += [f"    def {name}(self, x, scale=1.0):", f"        y = helper_{last(i)}(x) * scale + self.width"]
        lines += [f"        self.kept = {{'{name}': y, 'x': x}}", "        return math.tanh(y)", ""]
    return "\n".join(lines)


def last(i: int) -> int:
    """Return the last cell before `i` that defines a helper."""
    return next(each for each in range(i - 1, -1, -1) if each == 0 or each % 10 in (2, 3, 8))


def chain(count: int) -> list[str]:
    """Return a notebook of `count` cells, each of which defines a helper that calls the one before, and calls it."""
    first = "cfg = {'a': 1}\ndef helper_0(x): return x\nr0 = helper_0(0)"
    text = "def helper_{}(x):\n    y = helper_{}(x) + cfg['a']\n    return y\nr{} = helper_{}({})"
    return [first, *(text.format(i, i - 1, i, i, i) for i in range(1, count))]


def best(work: Callable[[], object]) -> float:
    """Return the milliseconds of CPU time of a call, the least of five."""
    times = []
    for _ in range(5):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return 1000 * min(times)


def figures(cells: list[str], target: str) -> list[float]:
    """Return the times of a cold capture, of a warm capture and of cloudpickle."""

    def cold() -> None:
        analyse.cache_clear()
        capture_cell(cells, target)

    namespace: dict[str, object] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in [*cells, target]:
            exec(cell, namespace)
    warm = partial(capture_cell, cells, target)
    return [best(cold), best(warm), best(lambda: cloudpickle.dumps(namespace["model"]))]


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    print("cells              lines   cold ms   warm ms   cloudpickle ms")
    for count in (10, 50, 100, 200, 400, 800):
        notebook = history(count)
        row = figures(notebook, f"def model(): return helper_{last(count)}(1)")
        lines = sum(cell.count("\n") + 1 for cell in notebook)
        print(f"{count:5} {'':11} {lines:7}   {row[0]:7.0f}   {row[1]:7.0f}   {row[2]:7.2f}")
    for count in (100, 400):
        row = figures(chain(count), f"def model(): return helper_{count - 1}(1)")
        print(f"{count:5} deep calls  {4 * count:7}   {row[0]:7.0f}   {row[1]:7.0f}   {row[2]:7.2f}")
