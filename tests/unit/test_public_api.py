"""Test that public names have NumPy sections that agree with their signatures, and examples that run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numpydoc.validate import validate

import daylight

ROOT = Path(__file__).parents[2]
MODULES = ("daylight", "daylight.checkpoints", "daylight.scheduler", "daylight.search")
# Of numpydoc: no docstring, no summary or period, no imperative verb, parameters that are not those of the signature
# or lack a type or a text, no returns, no yields.
RULES = {"GL08", "SS01", "SS03", "SS05", "PR01", "PR02", "PR03", "PR04", "PR07", "RT01", "RT03", "YD01"}
NEED_A_SERVICE = {"daylight.Job", "daylight.job", "daylight.show", "daylight.submit"}  # tests/service runs these
HOOKS = {"daylight.captured", "daylight.load_ipython_extension", "daylight.unload_ipython_extension"}  # users call none


def exported() -> Iterator[tuple[str, Any]]:
    """Yield the functions and classes that users import, by their names."""
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) or inspect.isfunction(found):
                yield f"{module.__name__}.{name}", found
    yield "kernel_backend.artifacts.run.Run", type(daylight.run)


def classes(of: Any) -> list[type]:
    """Return a class and the classes of its own package that it inherits from; nothing for a function."""
    package = of.__module__.rpartition(".")[0]
    return [each for each in of.__mro__ if each.__module__.startswith(package)] if inspect.isclass(of) else []


def members(of: Any) -> list[str]:
    found = {name: member for each in reversed(classes(of)) for name, member in vars(each).items()}
    return [
        name
        for name, member in found.items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    ]


PUBLIC = dict(exported())
DOCUMENTED = [*PUBLIC, *(f"{name}.{each}" for name, found in PUBLIC.items() for each in members(found))]


def test_a_docstring_has_the_sections_of_its_signature() -> None:
    assert len(DOCUMENTED) > 150
    assert not {name: wrong for name in DOCUMENTED if (wrong := lacking(name))}


def lacking(name: str) -> list[str]:
    """Return what a docstring lacks."""
    # Of a protocol, numpydoc would read the signature of object.
    rules = RULES - {"PR01"} if getattr(PUBLIC.get(name), "_is_protocol", False) else RULES
    return [f"{code}: {text}" for code, text in validate(name)["errors"] if code in rules]


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - NEED_A_SERVICE - HOOKS))
def test_examples_are_there_and_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tests = [each for each in doctest.DocTestFinder().find(PUBLIC[name], name, globs={}) if each.examples]
    assert any(each.name == name for each in tests), "write Examples"
    said: list[str] = []
    for each in tests:
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(each, out=said.append)
    assert not said, "".join(said)


def test_the_conventions_of_docstrings_are_checked_in_the_files_of_public_names() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    (pattern,) = [each for each in settings["per-file-ignores"] if each.startswith("!")]
    listed = {path for each in re.findall(r"[^!{},]+", pattern) for path in ROOT.glob(each)}
    modules = [Path(inspect.getfile(importlib.import_module(name))) for name in MODULES]
    defined = {Path(inspect.getfile(each)) for found in PUBLIC.values() for each in (found, *classes(found))}
    assert listed == {*modules, *defined}
