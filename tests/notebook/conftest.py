"""Small notebooks executed in a real kernel, against a real service in a home of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tests.notebook.cells import Kernel, Run
from tests.support.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("home"))
    yield world
    world.close()


@pytest.fixture(scope="module")
def kernel(world: World) -> Iterator[Kernel]:
    """A kernel beside a service that runs already."""
    world.serve()
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env={**os.environ, **world.environment}, cwd=str(world.home))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    yield Kernel(manager, client)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def execute(world: World, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run cells as nbconvert and papermill do; the executed cells come back, errors as outputs."""
    folder = tmp_path_factory.mktemp("notebooks")

    def execute(*sources: str, kernel: str = "python3") -> list[Any]:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
        client = NotebookClient(
            notebook,
            timeout=200,
            startup_timeout=120,
            iopub_timeout=60,  # what a cell says last may come late
            kernel_name=kernel,
            allow_errors=True,
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute(env={**os.environ, **world.environment})
        return list(notebook.cells)

    return execute
