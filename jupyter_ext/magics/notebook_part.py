"""Determine which part of a submitted cell the notebook executes itself: what the job trains is left to the job."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jupyter_ext.capture.cells import parse_cell
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.definition.lightning import source as lightning
from kernel_backend.definition.script import defined as script
from kernel_backend.definition.trainer import source as trainer


class NotebookPart(NamedTuple):
    """Part of a submitted cell that the notebook executes."""

    code: str
    recorded: str | None  # the running cell without what the notebook leaves out, for later captures; None: all of it
    makes: str = ""  # code that creates the cell's Trainer, for when the job has trained


def notebook_part(
    cell: str, running: str, definition: Definition, module: ast.Module, transform: Callable[[str], str]
) -> NotebookPart:
    """Return the part of a submitted cell that the notebook executes itself.

    It has the cell's definitions, which later cells may use. The training and what depends on it are left to the job.
    A cell that consists of role functions is executed as a whole.

    Parameters
    ----------
    cell : str
        The text below the line of the magic.
    running : str
        The whole text of the running cell.
    definition : Definition
        The definition that was submitted.
    module : ast.Module
        The captured module: classes and objects of the cell may come from earlier cells.
    transform : callable
        Returns a cell's text with IPython syntax replaced by Python.
    """
    parsed = parse_cell(running)
    if definition.form == "lightning":
        text, line = transform(cell), lightning.training_line(parsed.tree)
        return NotebookPart(
            lightning.defined_only(text), _above(parsed.lines, line), lightning.makes_trainer(text) if line else ""
        )
    if definition.form == "trainer":
        text, line = transform(cell), trainer.training_line(parsed.tree, module)
        return NotebookPart(
            trainer.defined_only(text, module), _above(parsed.lines, line), trainer.makes_trainer(text, module)
        )
    form = form_named(definition.form)
    if form.training_line is not None and not definition.of_functions:
        line = form.training_line(parsed.tree, module)
        return NotebookPart(_above(parsed.plain, line) or "", _above(parsed.lines, line))
    if form.whole:
        return NotebookPart(
            "\n".join(script.defined_only(parsed.plain, parsed.tree)),
            "\n".join(script.defined_only(parsed.lines, parsed.tree)),
        )
    return NotebookPart(cell, None)


def _above(lines: Sequence[str], line: int | None) -> str | None:
    """Return the lines above line `line`, which trains; None if `line` is None.

    Only these are recorded for later captures, since the notebook runs neither the training nor what comes after it.
    """
    return None if line is None else "\n".join(lines[: line - 1])
