"""Compare the environments of two experiments: Python, packages and machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_backend.differences.side import Side
from kernel_backend.model.diff import Difference
from kernel_backend.model.environments import changes
from kernel_backend.model.snapshot import DEFINITION
from kernel_backend.model.syntax import module_tree

# Distribution names of packages that are imported under another name.
_DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "cv2": "opencv-python",
    "yaml": "pyyaml",
    "skimage": "scikit-image",
}
_OURS = "daylight"
_NAMED = 4  # packages that a sentence names
# Facts that ranks report about the configuration and the machine; others are compared elsewhere.
_ASKED = ("numerics", "reproducible", "amp", "slots", "backend")
_MACHINE = ("device", "cpu", "cpu_capability", "threads", "deterministic", "cuda", "cudnn", "nccl", "driver")


def environment(a: Side, b: Side) -> Iterator[Difference]:
    """Yield differences of Python and packages, imported packages first, without Daylight's own version."""
    found = changes(a.snapshot.environment, b.snapshot.environment)
    begun = all("runtime" in side.facts for side in (a, b))
    for each in found:
        if each.kind == "python" or (each.kind == "variable" and not begun):  # else ranks report their variables
            yield Difference(kind="environment", name=each.name, text=str(each))
    packages = [each for each in found if each.kind == "package" and not each.name.startswith(_OURS)]
    if packages:
        imported = _imported(a) | _imported(b)
        named = [str(each) for each in sorted(packages, key=lambda each: each.name.split()[0] not in imported)]
        shown = ", ".join([*named[:_NAMED], *(["..."] if len(named) > _NAMED else [])])
        count = f"{len(named)} packages: " if len(named) > 1 else ""
        detail = tuple(named if len(named) > _NAMED else ())
        yield Difference(kind="environment", name="packages", text=count + shown, detail=detail)
    if begun:
        yield from _seen_by_ranks(a, b, {each.name.split()[0] for each in found})


def _seen_by_ranks(a: Side, b: Side, told: set[str]) -> Iterator[Difference]:
    """Yield differences in what only running ranks report: builds of libraries, and environment variables.

    Names in `told` are left out, as their differences were yielded before.
    """
    before, after = ({name: str(value) for name, value in side.facts["runtime"].items()} for side in (a, b))
    for name in {**before, **after}:
        old, new = before.get(name, "unset"), after.get(name, "unset")
        if old != new and name not in {*_MACHINE, *_ASKED, *told}:
            yield Difference(kind="environment", name=name, text=f"{name} {old} -> {new}")


def hardware(a: Side, b: Side) -> Iterator[Difference]:
    """Yield differences of the machines (devices, CPU, CUDA, driver) and of the number of threads.

    Compares what the ranks of both experiments reported or, if one has not started, what was recorded at submission.
    """
    begun = all("runtime" in side.facts for side in (a, b))
    before, after = (_machine(side, begun) for side in (a, b))
    for name in {**before, **after}:
        old, new = before.get(name, "unset"), after.get(name, "unset")
        if old != new:
            yield Difference(kind="hardware", name=name, text=f"{name} {old} -> {new}")


def _machine(side: Side, begun: bool) -> dict[str, str]:
    known = side.snapshot.environment
    asked = {"cpu": known.cpu, "threads": str(side.experiment.config.threads), "driver": known.driver or ""}
    told = side.facts["runtime"] if begun else {}
    seen = {name: str(value) for name, value in told.items() if name in _MACHINE}
    return {name: value for name, value in (asked | seen).items() if value}


def _imported(side: Side) -> set[str]:
    try:
        tree = module_tree(side.files.get(DEFINITION, b""))
    except SyntaxError:
        return set()
    modules = {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    tops = {module.split(".")[0] for module in modules}
    return {_DISTRIBUTIONS.get(top, top.replace("_", "-").lower()) for top in tops}
