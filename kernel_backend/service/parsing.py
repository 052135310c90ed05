"""Parse users' code, in functions that the service calls in a process with restricted rights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from kernel_backend.definition.binding import Bound, bind_space
from kernel_backend.definition.code import code_id, is_code
from kernel_backend.definition.command_line import Command
from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse_snapshot
from kernel_backend.definition.script.modules import project_modules
from kernel_backend.definition.search_class import check_class
from kernel_backend.differences.diff import causes
from kernel_backend.differences.side import Side
from kernel_backend.model.diff import Difference
from kernel_backend.model.experiment import Submission
from kernel_backend.model.search.registry import method_of
from kernel_backend.model.snapshot import Piece
from kernel_backend.snapshots.archive import UNREADABLE, Archive


class Accepted(NamedTuple):
    """Submission that is checked against its definition: its hyperparameters, and the name of its program."""

    bound: Bound
    program: str  # such as `train` for `python train.py`; "" for a notebook's cell


def accepted(root: Path, submission: Submission) -> Accepted:
    """Return a submission's hyperparameters and search space, checked against the functions in its notebook cell.

    `root` is the folder that holds the snapshot. Raises InvalidDefinition.
    """
    archive = Archive(root)
    source = archive.definition(submission.snapshot)
    snapshot = archive.snapshot(submission.snapshot)
    modules = project_modules(archive.files(submission.snapshot, is_code), snapshot.project)
    definition = parse_snapshot(source, snapshot, modules)
    found = bind_space(definition, submission.params, submission.space)
    check_options(definition, submission.config)
    search = submission.config.search
    if search is not None and search.source is not None and method_of(search.method).own_class:
        check_class(source, search.source)
    return Accepted(found, _program(definition.command, snapshot.pieces))


def _program(command: Command | None, pieces: Sequence[Piece]) -> str:
    """Return the name of the submitted file, or of the program of a command, without suffix; "" for a cell."""
    if command is not None:
        words = command.words
        return words[words.index("-m") + 1] if command.module else PurePath(words[command.at or 0]).stem
    last = pieces[-1] if pieces else None
    return "" if last is None or last.cell is not None else PurePath(last.file or "").stem


def meaning(root: Path, id: str) -> str:
    """Return a text of all that can affect a result in a snapshot: its normalised code, environment and data.

    Submissions whose snapshots have equal texts are duplicates if their parameters and options are equal, too.
    """
    archive = Archive(root)
    snapshot = archive.snapshot(id)
    data = sorted((each.name, each.digest) for each in snapshot.data)
    return repr((code_id(archive.files(id, is_code)), snapshot.environment.id, data, sorted(snapshot.commits)))


def causes_of(pairs: Sequence[Sequence[Side]]) -> list[tuple[Difference, ...]]:
    """Return the differences between the two experiments of each pair, as a tuple per pair.

    The tuple is empty for a pair with only one experiment.
    """
    return [_causes(*sides) if len(sides) == 2 else () for sides in pairs]


def unread(which: str, error: Exception) -> Difference:
    """Return the difference to show in place of all others if the snapshot of the experiment `which` cannot be read."""
    text = f"the snapshot of {which} cannot be read ({type(error).__name__}): not compared"
    return Difference(kind="code", name="snapshot", text=text)


def _causes(before: Side, after: Side) -> tuple[Difference, ...]:
    try:
        return causes(before, after)
    except UNREADABLE as error:  # it was readable a moment ago
        return (unread(f"#{before.experiment.number} or #{after.experiment.number}", error),)
