"""Provide packages that add search methods and training forms, built and installed for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_backend.definition.forms import registry as forms
from kernel_backend.model.packages.entry_points import EntryPoints
from kernel_backend.model.search import registry as searches

ANNEALING, IGNITE = (Path(__file__).parent / name for name in ("annealing", "ignite_form"))


def install(source: Path, site: Path) -> None:
    """Build a package and install it into a folder, without the network."""
    options = ("--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", site, source], check=True)


def written(
    site: Path, package: str, text: str, *names: str, group: str = "daylight.search_methods", object: str = "METHOD"
) -> None:
    """Write an installed package with one module into a folder; each name is an entry point to its `object`."""
    module = package.replace("-", "_")
    site.mkdir(exist_ok=True)
    (site / f"{module}.py").write_text(text, encoding="utf-8")
    described = site / f"{module}-1.0.dist-info"
    described.mkdir(exist_ok=True)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    entries = "".join(f"{name} = {module}:{object}\n" for name in names)
    (described / "entry_points.txt").write_text(f"[{group}]\n{entries}", encoding="utf-8")


@contextmanager
def importable(site: Path) -> Iterator[None]:
    """Make the packages in a folder importable in this process, with empty caches, and forget them afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        for registry in (searches, forms):
            patch.setattr(registry, "_entries", EntryPoints(registry._entries.group))
            patch.setattr(registry, "_loaded", {})
        yield
    for name, module in list(sys.modules.items()):  # or a later test is given a package whose files are gone
        if site in Path(getattr(module, "__file__", None) or "").parents:
            del sys.modules[name]
