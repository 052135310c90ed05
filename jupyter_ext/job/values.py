"""Read the values that a job has stored for its notebook: what the submitted cell has set."""

from __future__ import annotations

import ast
import contextlib
import difflib
import inspect
import linecache
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import IO, Any

import xxhash

from kernel_backend.client import Client
from kernel_backend.commands.artifacts import index_of, no_values, why_missing
from kernel_backend.definition.parse import parse_snapshot
from kernel_backend.errors import CheckpointDamaged, DaylightError, InvalidRequest, NotFound
from kernel_backend.model.artifacts import LAST, RANDOM, VALUES, CellValues
from kernel_backend.model.sizes import size
from kernel_backend.model.syntax import module_tree
from kernel_backend.snapshots.object_graph import JOB, unpickled
from kernel_backend.text.terminal import tell
from kernel_backend.trained.own_classes import equivalent, submitted_code

_LINES = 12  # of a difference between two definitions of a class
_IN_MEMORY = 2**28  # bytes; more are put into a temporary file
_AGAIN_S = 2.0  # between lines of progress


class JobValues(dict[str, Any]):
    """Values that a cell has set in its job, by name; what they share in the job, they share here."""

    def __init__(self, number: int, index: CellValues, values: Mapping[str, Any]) -> None:
        super().__init__({name: value for name, value in values.items() if name not in (LAST, RANDOM)})
        self.index, self.random = index, values.get(RANDOM)
        self._number, self._last = number, values.get(LAST)

    @property
    def last(self) -> Any:
        """Return the value of the cell's last expression; raises NotFound if it could not be stored."""
        if LAST in self.index.missing:
            raise NotFound(f"the last value could not come back from #{self._number}: {self.index.missing[LAST]}")
        return self._last

    def __missing__(self, name: str) -> Any:
        raise NotFound(why_missing(self._number, self.index, name))


def values_of(client: Client, number: int, trial: int, arriving: Callable[[str], None]) -> JobValues:
    """Download a trial's values and return them; `arriving` gets lines of progress if that takes a while.

    Classes and functions of the program are the notebook's own where they are equivalent. Raises NotFound if the trial
    has stored none, CheckpointDamaged if they are not what was stored, and InvalidRequest if they cannot be read here.
    """
    index = index_of(client, number, trial)
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        _download(client, number, trial, index, file, arriving)
        file.seek(0)
        try:
            return JobValues(number, index, unpickled(file, _classes(client, number, index), JOB))
        except DaylightError:
            raise
        except Exception as error:  # any error of the values' own code, or a module that is not installed here
            raise InvalidRequest(
                f"the values of #{number} cannot be read here: {type(error).__name__}: {error}. They were made in the "
                f"job's environment: %dl env {number}"
            ) from error


def _download(
    client: Client, number: int, trial: int, index: CellValues, file: IO[bytes], arriving: Callable[[str], None]
) -> None:
    digest, told = xxhash.xxh3_128(), time.monotonic()
    for piece in client.artifact_pieces(number, trial, VALUES):
        file.write(piece)
        digest.update(piece)
        if time.monotonic() - told >= _AGAIN_S:
            arriving(f"values of #{number}: {size(file.tell())} of {size(index.bytes)}")
            told = time.monotonic()
    if digest.hexdigest() != index.digest:
        raise CheckpointDamaged(f"the values of #{number} are damaged: their digest is another")


def values_of_functions(job: Any, trial: int) -> JobValues:
    """Return what a definition of functions has as values: the validations as `history`, a row each, and its model.

    The model is one that the cell gives as a value, and no function. Raises NotFound for another form, or a search.
    """
    source, snapshot = job.client.source(job.number)
    definition = parse_snapshot(source, snapshot)
    if not definition.of_functions or job.overview.experiment.config.search is not None:
        raise no_values(job.number)
    rows: Any = job.metrics("validation", trial)
    is_list = isinstance(rows, list)  # without pandas
    history = [dict(list(each.items())[1:]) for each in rows] if is_list else rows.drop(columns="kind")
    values = {"history": history}
    model = definition.functions.get("model")
    if model is not None and model.value:
        values[model.attribute] = job.load(trial=trial, wait=False)
    return JobValues(job.number, CellValues(values=dict.fromkeys(values, ""), bytes=0, digest=""), values)


def _classes(client: Client, number: int, index: CellValues) -> Mapping[str, Any]:
    """Return the classes and functions that the values need, by name: the notebook's, or those of the submission."""
    notebook = vars(sys.modules["__main__"])
    if not index.needs:
        return notebook
    definitions = submitted_code(client, number)
    return {name: _chosen(number, name, notebook, definitions) for name in index.needs}


def _chosen(number: int, name: str, notebook: Mapping[str, Any], definitions: ModuleType) -> Any:
    own, submitted = notebook.get(name), getattr(definitions, name, None)
    if submitted is None or (own is not None and equivalent(submitted, own, vars(definitions), notebook)):
        if own is None:
            raise NotFound(
                f"the values of #{number} need {name}, which the notebook lacks: define it in a cell of its own"
            )
        return own
    if own is not None:
        tell(
            f"{name} has changed in the notebook since #{number} was submitted: its values have the submitted one\n"
            f"{_difference(submitted, own)}",
            file=sys.stderr,
        )
    return submitted


def _difference(submitted: Any, own: Any) -> str:
    before, after = (_source(each).splitlines() for each in (submitted, own))
    lines = list(difflib.unified_diff(before, after, "submitted", "notebook", lineterm="", n=1))
    return "\n".join(f"  {each}" for each in lines[2 : 2 + _LINES])


def _source(definition: Any) -> str:
    """Return the source of a class or function; "" if it is unknown.

    `inspect` finds no class of a notebook: its lines are those of the cell that defines its methods.
    """
    with contextlib.suppress(OSError, TypeError):
        return inspect.getsource(definition)
    for each in vars(definition).values() if isinstance(definition, type) else ():
        if isinstance(each, FunctionType):
            cell = "".join(linecache.getlines(each.__code__.co_filename))
            nodes = (node for node in ast.walk(module_tree(cell)) if isinstance(node, ast.ClassDef))
            found = next((node for node in nodes if node.name == definition.__name__), None)
            return ast.get_source_segment(cell, found) or "" if found is not None else ""
    return ""
