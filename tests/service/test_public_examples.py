"""Run the docstring examples of public functions and the job object that need a service, with a real one."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import daylight
from tests.support.world import DEFINITION, World

pytestmark = pytest.mark.distributed


def test_the_examples_of_the_notebooks_functions_run(
    own_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(DEFINITION, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAYLIGHT_HOME", str(own_world.home))
    said: list[str] = []
    for name in ("submit", "job", "show", "Job"):  # in this order: the first trains what the others look at
        for each in doctest.DocTestFinder(recurse=False).find(getattr(daylight, name), name, globs={}):
            assert each.examples
            doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(each, out=said.append)
    assert not said, "".join(said)
