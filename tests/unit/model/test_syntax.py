"""Test that source is decoded as Python decodes it, and that several threads can parse at once."""

from __future__ import annotations

import ast
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_backend.model.syntax import expression_tree, module_tree, source_text

SOURCE = "def model(width=8):\n    return [width + each for each in range(3)]\n" * 20
TIMES = 200


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbfx = '\xc3\xb6'\n", "x = 'ö'\n"),
        (b"# -*- coding: latin-1 -*-\nx = '\xf6'\n", "# -*- coding: utf-8 -*-\nx = 'ö'\n"),
        (
            b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nx = '\x80'\n",
            "#!/usr/bin/python\n# vim: set fileencoding=utf-8 :\nx = '€'\n",
        ),
        (b"x = 1\r\n\n# coding: latin-1\n", "x = 1\n\n# coding: latin-1\n"),
    ],
)
def test_source_is_decoded_by_its_mark_or_coding_line_and_is_utf_8_from_then_on(data: bytes, text: str) -> None:
    assert source_text(data) == text
    names: list[dict[str, object]] = [{}, {}]
    exec(data, names[0])
    exec(text.encode(), names[1])
    assert names[0]["x"] == names[1]["x"]


@pytest.mark.parametrize("data", ["x = 'ö'".encode("latin-1"), b"# coding: no-such\nx = 1"])
def test_source_that_python_cannot_read_is_refused(data: bytes) -> None:
    with pytest.raises((SyntaxError, UnicodeDecodeError)):
        source_text(data)


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
