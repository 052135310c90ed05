"""Kernels, those of other environments too, and executed cells as a test reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

Run = Callable[..., list[Any]]


class Kernel(NamedTuple):
    """A running kernel, and a front end's way to it."""

    manager: KernelManager
    client: BlockingKernelClient


def printed(cell: Any) -> str:
    """Return the text that a cell printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def error(cell: Any) -> Any:
    """The error that a cell ended with; None where it did not, and for text."""
    return next((output for output in cell.get("outputs", ()) if output.output_type == "error"), None)


def shown(cell: Any) -> list[dict[str, Any]]:
    """The MIME bundles that a cell shows."""
    return [output.data for output in cell.outputs if output.output_type in ("display_data", "execute_result")]


def replace_in_cells(notebook: Any, written: str, instead: str) -> None:
    """Replace what one code cell of a notebook says; raises ValueError unless exactly one does."""
    (cell,) = (each for each in notebook.cells if each.cell_type == "code" and written in each.source)
    cell.source = cell.source.replace(written, instead)


def kernel_of(folder: Path, python: Path, name: str) -> None:
    """Write a kernelspec of that interpreter below `folder`, a directory of JUPYTER_PATH."""
    spec = folder / "kernels" / name
    spec.mkdir(parents=True)
    argv = f'["{python}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (spec / "kernel.json").write_text(f'{{"argv": {argv}, "display_name": "{name}", "language": "python"}}')
