"""Provide packages that add search methods, built and installed for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_backend.model.search import registry

ANNEALING = Path(__file__).parent / "annealing"


def install(source: Path, site: Path) -> None:
    """Build a package and install it into a folder, without the network."""
    options = ("--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", site, source], check=True)


def written(site: Path, package: str, text: str, *names: str) -> None:
    """Write an installed package with one module into a folder; each name is an entry point to METHOD."""
    module = package.replace("-", "_")
    site.mkdir(exist_ok=True)
    (site / f"{module}.py").write_text(text, encoding="utf-8")
    described = site / f"{module}-1.0.dist-info"
    described.mkdir(exist_ok=True)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    entries = "".join(f"{name} = {module}:METHOD\n" for name in names)
    (described / "entry_points.txt").write_text(f"[daylight.search_methods]\n{entries}", encoding="utf-8")


@contextmanager
def importable(site: Path) -> Iterator[None]:
    """Make the packages in a folder importable in this process, with empty caches, and forget them afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setattr(registry, "_found", None)
        patch.setattr(registry, "_loaded", {})
        yield
    for name, module in list(sys.modules.items()):  # or a later test is given a package whose files are gone
        if site in Path(getattr(module, "__file__", None) or "").parents:
            del sys.modules[name]
