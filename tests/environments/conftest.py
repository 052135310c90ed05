"""Fixtures that the tests of environments share."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement

from kernel_backend.model.snapshot import Environment
from kernel_backend.snapshots.environment import record


def needed(*roots: str) -> set[str]:
    """Return these distributions and all of their dependencies, by name."""
    found: set[str] = set()
    left = list(roots)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        try:
            asked = requires(name) or []
        except PackageNotFoundError:
            continue
        if name not in found:
            found.add(name)
            wanted = [
                each for each in map(Requirement, asked) if not each.marker or each.marker.evaluate({"extra": ""})
            ]
            left += [each.name for each in wanted]
    return found


def without_the_rest(*more: str) -> Environment:
    """Return this environment, reduced to these distributions and the packages that ranks need."""
    found = record()
    kept = needed("daylight", "torch", "horovod", "numpy", *more) | {"cloudpickle", "psutil", "pyyaml"}
    distributions = {name: version for name, version in found.distributions.items() if name in kept}
    return found.model_copy(update={"distributions": distributions})


@pytest.fixture(scope="module")
def small() -> Environment:
    return without_the_rest()


@pytest.fixture(scope="module")
def storing() -> Environment:
    """Return the reduced environment with the packages for an object store."""
    return without_the_rest("s3fs")


@pytest.fixture(scope="module")
def online() -> None:
    """Let uv use package indexes, which other tests forbid."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("UV_OFFLINE", raising=False)
        yield
