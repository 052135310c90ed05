"""Run small notebooks in a real kernel, with a real service in its own home."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tests.notebook.cells import Kernel, Run, error, replace_in_cells
from tests.support import forked_kernels
from tests.support.world import World

BINDER = Path(__file__).parents[2] / "binder"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("home"), shared_forkserver=True)
    yield world
    world.close()


@pytest.fixture(scope="module")
def kernels(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder with the kernelspec `python3`, whose kernels need not import torch and Daylight anew."""
    folder = tmp_path_factory.mktemp("kernels")
    forked_kernels.write_kernelspec(folder, world.home)
    return folder


@contextlib.contextmanager
def known(kernels: Path) -> Iterator[None]:
    """Let kernels be found in a folder, unless the test's own folders have some of the same name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", os.pathsep.join(filter(None, [os.environ.get("JUPYTER_PATH"), str(kernels)])))
        yield


@contextlib.contextmanager
def started(world: World, kernels: Path) -> Iterator[Kernel]:
    """Start a kernel, and end it after the `with` block."""
    environment = {**os.environ, **world.environment}
    with known(kernels):
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel(env=environment, cwd=str(world.home))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=600)
    yield Kernel(manager, client)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel(world: World, kernels: Path) -> Iterator[Kernel]:
    """Provide a kernel, next to a service that already runs."""
    world.serve()
    with started(world, kernels) as kernel:
        yield kernel


@pytest.fixture(scope="module")
def run_notebook(world: World, kernels: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """Provide a function that runs a notebook like papermill, and returns its cells with errors as outputs."""
    folder = tmp_path_factory.mktemp("notebooks")

    def run_notebook(notebook: Any, kernel: str = "python3", timeout: int = 200) -> list[Any]:
        client = NotebookClient(
            notebook,
            timeout=timeout,  # seconds of a cell
            startup_timeout=120,
            iopub_timeout=60,  # what a cell says last may come late
            kernel_name=kernel,
            allow_errors=True,
            resources={"metadata": {"path": str(folder)}},
        )
        environment = {**os.environ, **world.environment}
        with known(kernels):
            client.execute(env=environment)
        return list(notebook.cells)

    return run_notebook


@pytest.fixture(scope="module")
def execute(run_notebook: Callable[..., list[Any]]) -> Run:
    """Run cells of a notebook, and return them with errors as outputs."""

    def execute(*sources: str, kernel: str = "python3") -> list[Any]:
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        return run_notebook(nbformat.v4.new_notebook(cells=cells), kernel)

    return execute


@pytest.fixture(scope="module")
def executed(run_notebook: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Run a notebook of `binder/`, all cells of which must succeed, and return its cells.

    `fewer` holds what the notebook says and what a test says instead, such as ("--epochs 40", "--epochs 20"), unless
    the variable FULL_NOTEBOOKS is set, as `make torture` does.
    """

    def executed(name: str, timeout: int = 200, *fewer: tuple[str, str], kernel: str = "python3") -> list[Any]:
        notebook = nbformat.read(BINDER / f"{name}.ipynb", as_version=4)
        for written, instead in fewer if "FULL_NOTEBOOKS" not in os.environ else ():
            replace_in_cells(notebook, written, instead)
        cells = run_notebook(notebook, kernel, timeout)
        assert [error(cell) for cell in cells if error(cell)] == []
        return cells

    return executed
