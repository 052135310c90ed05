"""Test that several threads can parse source text at once."""

from __future__ import annotations

import ast
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_backend.model.syntax import expression_tree, module_tree

SOURCE = "def model(width=8):\n    return [width + each for each in range(3)]\n" * 20
TIMES = 200


@pytest.fixture
def collecting() -> Iterator[None]:
    """Collect garbage all the time during the block, which lets other threads run."""
    before = gc.get_threshold()

    def let_others_go_on(*_: object) -> None:
        time.sleep(0)

    gc.callbacks.append(let_others_go_on)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(let_others_go_on)


def test_threads_that_parse_at_once_do_not_disturb_each_other(collecting: None) -> None:
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(lambda _: ast.dump(module_tree(SOURCE)), range(TIMES)))
        values = list(pool.map(lambda _: ast.dump(expression_tree("[1, [2, 3], -4]")), range(TIMES)))
    assert set(trees) == {ast.dump(ast.parse(SOURCE))}
    assert len(set(values)) == 1
