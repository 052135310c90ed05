"""Run notebooks from top to bottom with a submitted cell: later cells show what they show without the magic's line.

`python -m tests.torture.run_all` does so with all notebooks of the corpus.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook.conftest import known
from tests.support.world import World
from tests.torture.run_all import FOLDER, differences

CHEAP = ["grid_search", "linear_by_hand", "lambdas_and_closures"]


@pytest.mark.parametrize("name", CHEAP)
def test_later_cells_show_what_they_show_without_the_magic(
    name: str, world: World, kernels: Path, tmp_path: Path
) -> None:
    world.serve()
    with known(kernels):
        assert differences(FOLDER / f"{name}.py", tmp_path, world.environment) == []
