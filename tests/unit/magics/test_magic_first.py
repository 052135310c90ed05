"""Test that comments and empty lines may precede `%%dlsubmit`, with unchanged line numbers."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_ext.capture import capture_cell
from jupyter_ext.magics import magics
from jupyter_ext.magics.magic_first import magic_first
from tests.notebooks.kernel import shell

CELL = "%%dlsubmit --dry-run width=4\nimport torch\ndef model(width): return torch.nn.Linear(width, 1)\n"
ROLES = "def train_data(): return [1]\ndef loss(output): return output\n"
ABOVE = ["", "\n", "  \n\n", "# the first try\n", "# %%\n\n# the second\n   # and third\n"]


@pytest.fixture
def kernel() -> InteractiveShell:
    made = shell()
    magics.load(made)
    return made


@pytest.mark.parametrize("above", ABOVE)
def test_a_cell_is_submitted_with_comments_above_the_magic(
    kernel: InteractiveShell, capsys: pytest.CaptureFixture[str], above: str
):
    assert kernel.run_cell(above + CELL + ROLES, store_history=True).success
    said = capsys.readouterr().out
    assert "# nothing was sent" in said
    assert "def model(width)" in said


@pytest.mark.parametrize("above", ABOVE)
def test_any_cell_is_run_with_comments_above_its_magic(
    kernel: InteractiveShell, capsys: pytest.CaptureFixture[str], above: str
):
    assert kernel.run_cell(above + "%%dlrun --back x --dry-run\nx = 20\nx + 1\n", store_history=True).success
    said = capsys.readouterr().out
    assert "# nothing was sent" in said
    assert "# %%dlrun --back x --slots 1 " in said
    assert "x = 20" in said


@pytest.mark.parametrize("above", ABOVE)
def test_problems_are_told_by_the_lines_of_the_cell(kernel: InteractiveShell, above: str):
    result = kernel.run_cell(above + CELL + ROLES + "def validation_data(): return nowhere", store_history=True)
    line = above.count("\n") + 6
    assert f"(line {line})" in str(result.error_in_exec)


@pytest.mark.parametrize("above", ABOVE)
def test_a_later_cell_finds_what_such_a_cell_defined(above: str):
    source = capture_cell([above + CELL], "def loss(): return model").source
    assert "def model(width)" in source
    assert "dlsubmit" not in source


def test_other_cells_stay_as_they_are(kernel: InteractiveShell):
    for cell in ("x = 1\n%%dlsubmit\n", "# a\n%%time\nx = 1", "%%dlsubmit\n", "  %%dlsubmit\n", "# only\n", ""):
        lines = cell.splitlines(keepends=True)
        assert magic_first(lines) == lines
    assert magic_first in kernel.input_transformers_cleanup
    magics.unload(kernel)
    assert magic_first not in kernel.input_transformers_cleanup
