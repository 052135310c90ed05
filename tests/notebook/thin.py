"""Create an environment with the core dependencies and a user's packages, without the [server] extra."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
A_PERSONS_OWN = ("ipykernel", "torch", "numpy")


def make(folder: Path) -> Path:
    """Return an interpreter whose site-packages have only links to the distributions that the core needs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in needed():
        for file in importlib.metadata.files(name) or ():
            top = Path(str(file)).parts[0]
            target = Path(str(importlib.metadata.distribution(name).locate_file(top)))
            if top != ".." and target.exists() and not (packages / top).exists():
                (packages / top).symlink_to(target)
    (packages / "daylight.pth").write_text(f"{ROOT}\n")
    return folder / "bin" / "python"


def needed() -> set[str]:
    """Return the names of the distributions of `pip install daylight`, and of a user's own packages."""
    found: set[str] = set()
    queue = [*(importlib.metadata.requires("daylight") or ()), *A_PERSONS_OWN]
    while queue:
        requirement = Requirement(queue.pop())
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name.lower() not in found:
            found.add(requirement.name.lower())
            queue += importlib.metadata.requires(requirement.name) or ()
    return found
