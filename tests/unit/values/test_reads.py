"""Test which of the values on their way a cell reads, itself and by functions and classes of the notebook."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_ext.capture.cells import parse_cell
from jupyter_ext.values.reads import reads

ON_THEIR_WAY = {"model", "history", "best"}
NOTEBOOK = """
import functools
def evaluate(x):
    return [model(x) for _ in range(2)]
def untouched(x):
    return x.history
class Judge:
    def go(self):
        def inner():
            return evaluate(1)
        return inner()
judge = Judge()
half = functools.partial(evaluate, 1)
"""


@pytest.fixture(scope="module")
def held() -> dict[str, Any]:
    held: dict[str, Any] = {"__name__": "__main__"}
    exec(NOTEBOOK, held)
    return held


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("print(x)", set()),
        ("history[-1]", {"history"}),
        ("history = []\nhistory.append(1)", set()),
        ("best = best + 1", {"best"}),
        ("best += 1", {"best"}),
        ("del history", {"history"}),
        ("for best in range(3):\n    print(best)", set()),
        ("for i in range(3):\n    best = i\nprint(best)", set()),
        ("for i in range(3):\n    print(best)\n    best = i", {"best"}),
        ("if x:\n    best = 1\nprint(best)", {"best"}),
        ("with open('f') as history:\n    print(history)", set()),
        ("try:\n    best = 1\nexcept ValueError:\n    print(model)", {"model"}),
        ("evaluate(3)", {"model"}),
        ("half()", {"model"}),
        ("judge.go()", {"model"}),
        ("Judge().go()", {"model"}),
        ("untouched(3)", set()),
        ("def show():\n    return best", set()),
        ("def show():\n    return best\nshow()", {"best"}),
        ("sorted(x, key=lambda each: best)", {"best"}),
        ("class A:\n    b = best", {"best"}),
        ("print(f'{best:.2f}')", {"best"}),
        ("%timeit model(x)", {"model"}),
        ("%%time\nprint(best)", {"best"}),
        ("!echo {best}", {"best"}),
        ("%dl values 4 history", set()),
        ("%%html\n<b>best</b>", set()),
        ("not python at all", set()),
    ],
)
def test_a_cell_waits_for_what_it_reads_and_for_nothing_else(
    cell: str, expected: set[str], held: dict[str, Any]
) -> None:
    assert reads(parse_cell(cell), ON_THEIR_WAY, held) == expected
