"""Differences of what the code ran with: Python, packages, and the machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from kernel_backend.differences.side import Side
from kernel_backend.model.diff import Difference
from kernel_backend.model.snapshot import DEFINITION, Environment

# After those that the code names itself.
_LIKELY = ("torch", "numpy", "horovod", "torchvision", "lightning", "keras", "tensorflow", "scipy", "pandas")
# What a package is called where its import has another name.
_DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "cv2": "opencv-python",
    "yaml": "pyyaml",
    "skimage": "scikit-image",
}
_OURS = "daylight"
_NAMED = 4  # packages, in a sentence
# Of a rank's own facts those about the machine and how it is used; the others are told elsewhere.
_MACHINE = ("device", "cpu", "cpu_capability", "threads", "deterministic", "cuda", "cudnn", "nccl", "driver")


def environment(a: Side, b: Side) -> Iterator[Difference]:
    """Python and packages; those first that the code imports."""
    before, after = a.snapshot.environment, b.snapshot.environment
    for name in ("python", "implementation"):
        if getattr(before, name) != getattr(after, name):
            yield Difference(kind="environment", text=f"{name} {getattr(before, name)}, now {getattr(after, name)}")
    found = _packages(before, after)
    if found:
        imported = _imported(a) | _imported(b)
        names = sorted(found, key=lambda name: (name not in imported, _likeliness(name), name))
        shown = ", ".join([*(found[name] for name in names[:_NAMED]), *(["..."] if len(names) > _NAMED else [])])
        count = f"{len(names)} packages: " if len(names) > 1 else ""
        yield Difference(kind="environment", text=count + shown, detail=tuple(found[name] for name in names))
    variables = _changed(before.variables, after.variables)
    if variables:
        yield Difference(kind="environment", text=f"environment variables: {', '.join(variables)}")
    build = _changed(before.horovod, after.horovod)
    if build:
        yield Difference(kind="environment", text=f"Horovod's build: {', '.join(build)}")


def hardware(a: Side, b: Side) -> Iterator[Difference]:
    """The machine, and how many threads computed: what ranks saw goes before what was asked for."""
    facts = [_machine(side) for side in (a, b)]
    for line in _changed(*facts):
        yield Difference(kind="hardware", text=line)


def _machine(side: Side) -> dict[str, str]:
    known = side.snapshot.environment
    asked = {"cpu": known.cpu, "threads": str(side.experiment.config.threads), "driver": known.driver or ""}
    seen = {name: str(value) for name, value in side.facts.get("runtime", {}).items() if name in _MACHINE}
    return {name: value for name, value in (asked | seen).items() if value}


def _packages(before: Environment, after: Environment) -> dict[str, str]:
    """Name -> `torch 2.12 -> 2.13`, for each distribution that is another; our own is told by itself."""
    names = {*before.distributions, *after.distributions} - {_OURS}
    return {name: text for name in names if (text := _package(name, before, after))}


def _package(name: str, before: Environment, after: Environment) -> str:
    old, new = before.distributions.get(name), after.distributions.get(name)
    if old != new:
        return f"{name} {old or 'absent'} -> {new or 'absent'}"
    if before.editable.get(name) != after.editable.get(name):
        return f"{name} {new}, whose source files have changed"
    if before.conda.get(name) != after.conda.get(name):
        return f"{name} {new}, of another conda build"
    if before.urls.get(name) != after.urls.get(name):
        return f"{name} {new} of {after.urls.get(name, 'an index')}, before of {before.urls.get(name, 'an index')}"
    return ""


def _imported(side: Side) -> set[str]:
    try:
        tree = ast.parse(side.files.get(DEFINITION, b""))
    except SyntaxError:
        return set()
    modules = {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    tops = {module.split(".")[0] for module in modules}
    return {_DISTRIBUTIONS.get(top, top.replace("_", "-").lower()) for top in tops}


def _likeliness(name: str) -> int:
    return _LIKELY.index(name) if name in _LIKELY else len(_LIKELY)


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """`threads 2 -> 1` for each that is another."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [f"{name} {before.get(name, 'unset')} -> {after.get(name, 'unset')}" for name in names]
