"""Run the examples in docstrings of modules; those of what `daylight` exports are run by `test_public_api.py`."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS_A_SERVICE = {"jupyter_ext.job.job"}  # of what `daylight` exports
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for folder in ("kernel_backend", "jupyter_ext")
    for path in (ROOT / folder).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", [each for each in MODULES if each not in NEEDS_A_SERVICE])
def test_the_examples_of_a_module_are_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # some write files
    failed, tried = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS, report=True)
    assert failed == 0
    assert tried > 0
