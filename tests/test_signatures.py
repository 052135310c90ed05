"""Test that constructors have at most seven arguments, so that values which belong together become records."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.test_layers import FILES, tree

MOST = 7
# Only ever shorter. A dataclass or pydantic record writes no constructor, and is none of these.
TOO_MANY = {
    "kernel_backend.launch.search_process.ChildSearchProcess",
    "kernel_backend.runner.checkpoint.checkpointer.Checkpointer",
    "kernel_backend.runner.data.batches.Batches",
    "kernel_backend.scheduler.state.ClusterState",
    "kernel_backend.search.simulation.simulate._Simulation",
}


def constructors() -> Iterator[tuple[str, ast.arguments]]:
    for module in FILES:
        for cls in ast.walk(tree(module)):
            if isinstance(cls, ast.ClassDef):
                for node in cls.body:
                    if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                        yield f"{module}.{cls.name}", node.args


def test_no_constructor_has_more_than_seven_arguments() -> None:
    found = {
        name
        for name, arguments in constructors()
        if len(arguments.posonlyargs + arguments.args + arguments.kwonlyargs) - 1 > MOST  # less `self`
    }
    assert found - TOO_MANY == set(), "make one record of what these share"
    assert TOO_MANY - found == set(), "take these out of TOO_MANY"
