"""Test the locks of requirements/: they match pyproject.toml, and have a hash for each version."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.test_layers import OURS, imports, reached

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
GROUPS = PYPROJECT["dependency-groups"]


def asked_for(extra: str) -> list[Requirement]:
    """Return the requirements of an extra, including those of Daylight's extras that it names."""
    found = []
    for text in EXTRAS[extra]:
        requirement = Requirement(text)
        if requirement.name == "daylight":
            found += [each for name in sorted(requirement.extras) for each in asked_for(name)]
        else:
            found.append(requirement)
    return found


LOCKS = {
    "dev": [
        *(Requirement(text) for text in (*PYPROJECT["project"]["dependencies"], *GROUPS["dev"], *GROUPS["docs"])),
        *asked_for("test"),
    ],
    "service": [
        *(Requirement(text) for text in (*PYPROJECT["project"]["dependencies"], *GROUPS["image"])),
        *(each for extra in ("hub", "kubernetes", "postgresql", "remote") for each in asked_for(extra)),
    ],
    "worker": [
        *(Requirement(text) for text in (*PYPROJECT["project"]["dependencies"], *GROUPS["image"])),
        *asked_for("remote"),
    ],
    **{name: [Requirement(text) for text in GROUPS[name]] for name in ("horovod", "installer", "node", "tensorflow")},
}


def entries(lock: str) -> list[str]:
    """Return the lock's entries, each with its hashes in one line."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]


@pytest.mark.parametrize("lock", LOCKS)
def test_each_version_has_the_hash_of_its_files(lock: str) -> None:
    for entry in entries(lock):
        assert re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", entry), entry


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_all_that_pyproject_asks_for(lock: str) -> None:
    versions: dict[str, list[str]] = {}
    for entry in entries(lock):
        name, version = re.match(r"([\w.-]+)==(\S+)", entry).groups()
        versions.setdefault(canonicalize_name(name), []).append(version)
    for requirement in LOCKS[lock]:
        locked = versions.get(canonicalize_name(requirement.name), [])
        assert locked, f"{requirement} is not in requirements/{lock}.txt: make lock"
        fits = [requirement.specifier.contains(each, prereleases=True) for each in locked]
        assert all(fits), f"{requirement}, not {locked}: make lock"


@pytest.mark.parametrize(
    ("module", "extras"),
    [
        ("kernel_backend.runner.rank_process", []),
        ("kernel_backend.launch.__main__", []),
        ("kernel_backend.launch.probe", []),
        ("kernel_backend.cli", []),
        ("jupyter_ext.magics.magics", []),
        ("kernel_backend.app", ["server"]),
    ],
)
def test_what_a_process_imports_at_its_start_is_a_dependency(module: str, extras: list[str]) -> None:
    """An image or an environment that has only what the wheel asks for, and torch, can start each process."""
    dependencies = [Requirement(text) for text in PYPROJECT["project"]["dependencies"]]
    dependencies += [each for extra in extras for each in asked_for(extra)]
    named = {canonicalize_name(each.name) for each in dependencies} | {"torch"}
    top_level = {name.split(".")[0] for one in reached(module) for name in imports(one, everywhere=False)}
    others = top_level - {*OURS, *sys.stdlib_module_names, "pydantic_core"}  # which pydantic pins
    distributions = packages_distributions()
    missing = {name for name in others if not {canonicalize_name(each) for each in distributions[name]} & named}
    assert not missing, f"{module} imports {sorted(missing)}, which are no dependencies of the wheel"


def test_locks_name_no_index() -> None:
    assert not [line for lock in LOCKS for line in entries(lock) if "://" in line]
