"""Use kernels, also those of other environments, and read the outputs of executed cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from jupyter_ext.values.awaited import MARK

Run = Callable[..., list[Any]]


class Kernel(NamedTuple):
    """Running kernel, with a frontend's connection to it."""

    manager: KernelManager
    client: BlockingKernelClient


class Notebook:
    """Kernel whose frontend accepts requests for input, like JupyterLab."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client
        self.outputs: list[dict[str, Any]] = []

    def run(self, source: str, interrupt_when: str | None = None) -> str:
        """Execute a cell, and return its output as text.

        If `interrupt_when` is given, interrupt the cell once that text appears.
        """
        self.outputs = []
        interrupted = False

        def hear(message: dict[str, Any]) -> None:
            nonlocal interrupted
            self.outputs.append(message)
            if interrupt_when and interrupt_when in self.text() and not interrupted:
                interrupted = True
                self.manager.interrupt_kernel()

        self.client.execute_interactive(source, allow_stdin=True, output_hook=hear, timeout=600)
        return self.text()

    def text(self) -> str:
        contents = [message["content"] for message in self.outputs]
        texts = [each.get("text") or each.get("evalue") or each.get("data", {}).get("text/plain") for each in contents]
        return "\n".join(filter(None, texts))

    def kinds(self) -> list[str]:
        return [message["msg_type"] for message in self.outputs]


def printed(cell: Any) -> str:
    """Return the text that a cell printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def error(cell: Any) -> Any:
    """Return the error with which a cell ended; None if it succeeded."""
    return next((output for output in cell.get("outputs", ()) if output.output_type == "error"), None)


def shown(cell: Any) -> list[dict[str, Any]]:
    """Return the MIME bundles that a cell displays, without lines on values that came from a job."""
    displayed = (output for output in cell.outputs if output.output_type in ("display_data", "execute_result"))
    return [output.data for output in displayed if MARK not in output.metadata]


def replace_in_cells(notebook: Any, written: str, instead: str) -> None:
    """Replace a text in the only code cell that contains it; raises ValueError if there is no such single cell."""
    (cell,) = (each for each in notebook.cells if each.cell_type == "code" and written in each.source)
    cell.source = cell.source.replace(written, instead)


def kernel_of(folder: Path, python: Path, name: str) -> None:
    """Write the kernelspec of this interpreter below `folder`, which is in JUPYTER_PATH."""
    spec = folder / "kernels" / name
    spec.mkdir(parents=True)
    argv = f'["{python}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (spec / "kernel.json").write_text(f'{{"argv": {argv}, "display_name": "{name}", "language": "python"}}')
