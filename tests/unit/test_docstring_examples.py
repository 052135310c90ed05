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


def test_the_examples_of_all_modules_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # some write files
    modules = [each for each in MODULES if each not in NEEDS_A_SERVICE]
    results = {
        each: doctest.testmod(import_module(each), optionflags=doctest.ELLIPSIS, report=True) for each in modules
    }
    assert not [module for module, found in results.items() if found.failed], "the output says what came instead"
    assert len(modules) > 90
    assert not [module for module, found in results.items() if not found.attempted]
