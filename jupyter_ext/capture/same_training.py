"""Remove a training from earlier cells if the submitted cell contains it, too, so that the job trains once."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from jupyter_ext.capture.cells import Cell
from jupyter_ext.capture.statements import analyse
from kernel_backend.definition.script.loops import training_loops

_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


class Untried(NamedTuple):
    """Earlier cells without the training that the submitted cell repeats, and a note about each cell that had it."""

    cells: list[Cell]
    notes: tuple[str, ...] = ()
    trains: bool = False  # the submitted cell contains a training loop


def without_same_training(cells: Sequence[Cell], target: str) -> Untried:
    """Return the earlier cells after blanking those training statements that the submitted cell, `target`, repeats.

    A user may run a loop in the notebook and then submit the same loop. As a job repeats all statements that computed
    notebook values, it would otherwise train twice. Line numbers do not change.
    """
    if not any("backward" in source for source in (target, *(each.source for each in cells))):
        return Untried(list(cells))  # fast path for the many notebooks without a loop of their own
    trees = [analyse(each.source)[0].tree for each in cells]
    target_tree = analyse(target)[0].tree
    own = [each for each in target_tree.body if not isinstance(each, _DEFINING)]
    defined = [each for tree in (*trees, target_tree) for each in tree.body if isinstance(each, _DEFINING)]
    if not training_loops(ast.Module([*defined, *own], [])):
        return Untried(list(cells))
    earlier = {ast.dump(each) for tree in trees for each in tree.body if not isinstance(each, _DEFINING)}
    both = {text: each for each in own if (text := ast.dump(each)) in earlier}
    same = {text for text, each in both.items() if training_loops(ast.Module([*defined, each], []))}
    found: list[Cell] = []
    notes: list[str] = []
    for cell, tree in zip(cells, trees, strict=True):
        lines = cell.source.split("\n")
        tried = [each for each in tree.body if ast.dump(each) in same]
        for each in tried:
            end = each.end_lineno or each.lineno
            lines[each.lineno - 1 : end] = [""] * (end - each.lineno + 1)
        if tried:
            notes.append(
                f"cell [{cell.number}] line {tried[0].lineno} has run this training in the notebook: the job begins "
                "without it"
            )
        error_line = None if any(_is_within(cell.error_line, each) for each in tried) else cell.error_line
        found.append(replace(cell, source="\n".join(lines), error_line=error_line) if tried else cell)
    return Untried(found, tuple(notes), trains=True)


def _is_within(line: int | None, statement: ast.stmt) -> bool:
    return line is not None and statement.lineno <= line <= (statement.end_lineno or statement.lineno)
