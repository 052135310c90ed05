"""Define the verbs for what trials have stored: their artifacts, and the values of a notebook's cell."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kernel_backend.client import Client
from kernel_backend.commands.answer import Answer, Bound, Table, Text
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument
from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model import versions
from kernel_backend.model.artifacts import INDEX, Artifact, CellValues
from kernel_backend.model.ids import Reference
from kernel_backend.model.sizes import size
from kernel_backend.model.states import EXPERIMENT_ENDED
from kernel_backend.model.values import nearest
from kernel_backend.text.stored_files import ARTIFACT_HEAD, artifact_row

NONE = "nothing has been kept"
VALUE_HEAD = ("name", "value")


def listed(client: Client, reference: Reference) -> list[Artifact]:
    """Return the artifacts of an experiment, or of one of its trials; raises NotFound if there is no such trial."""
    number, trial = reference.experiment, reference.trial
    found = client.artifacts(number)
    count = sum(client.experiment(number).counts.values())
    if trial is not None and not 1 <= trial <= count:
        raise NotFound(f"experiment #{number} has no trial {trial}: it has {count}")
    return [each for each in found if trial in (None, each.trial)]


def brought(client: Client, reference: Reference, found: Sequence[Artifact], options: argparse.Namespace) -> list[Path]:
    """Download the artifacts selected by the options `get` and `out` to `DIR/<trial>/<file>`; return the paths.

    `options.get` is the name of the wanted artifacts, and `options.out` the folder DIR. Existing files are replaced.
    Raises NotFound if no artifact has the requested name, and InvalidRequest if a file cannot be written.
    """
    wanted = [each for each in found if options.get in (None, each.name)]
    if options.get is not None and not wanted:
        names = sorted({each.name for each in found})
        near = nearest(options.get, names)
        raise NotFound(f"nothing was kept as {options.get!r}{near}; there is: {', '.join(names) or 'nothing'}")
    folder = Path(options.out or f"artifacts-{reference.experiment}").expanduser()
    called = Counter((each.trial, each.file) for each in found)
    files = []
    for each in wanted:
        data = client.artifact(reference.experiment, each.trial, each.name)
        # `net` saved as a PNG and `net.png` have the same file name.
        file = folder / str(each.trial) / (each.file if called[each.trial, each.file] == 1 else each.name)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        except OSError as error:
            raise InvalidRequest(f"cannot write to {file}: {error.strerror or error}") from error
        files.append(file)
    return files


def _artifacts(call: Call) -> Answer:
    options = call.arguments
    found = listed(call.client, call.reference)
    if options.get or options.out:
        files = [str(file) for file in brought(call.client, call.reference, found, options)]
        return Answer({"files": files}, [Text(files or [NONE])])
    rows = [artifact_row(each, time.time()) for each in found]
    return Answer({"artifacts": found}, [Table(ARTIFACT_HEAD, rows, NONE)])


ARTIFACTS = Verb(
    "artifacts",
    "list or download the artifacts that trials saved with run.artifact",
    _artifacts,
    (
        NUMBER,
        argument("--get", metavar="NAME", help="download the artifact of this name from each trial that has it"),
        argument(
            "--out",
            metavar="DIR",
            help="folder for downloads; without --get, all artifacts [artifacts-12]",
            complete="folder",
        ),
        JSON,
    ),
    ("artifacts 12", "artifacts 12.7 --get architecture", "artifacts 12 --out pictures"),
    takes="one experiment, or one trial",
    client=("artifacts", "artifact"),
    job=("artifacts", "artifact"),
)


def index_of(client: Client, number: int, trial: int) -> CellValues:
    """Return the index of a trial's values; raises NotFound if it has stored none."""
    try:
        return versions.read(CellValues, client.artifact(number, trial, INDEX))
    except NotFound as error:
        overview = client.experiment(number)
        if overview.experiment.state not in EXPERIMENT_ENDED:
            raise NotFound(f"#{number} is {overview.state}: its values come at its end") from error
        raise no_values(number) from error


def no_values(number: int) -> NotFound:
    """Return the error for a job that has stored no values."""
    return NotFound(
        f"#{number} has stored no values: the job of a notebook's cell with a loop, or below %%dlrun, does at its end, "
        "unless it is a search or --no-values was given. job.load() gives the model of a checkpoint"
    )


def why_missing(number: int, index: CellValues, name: str) -> str:
    """Return why a job has no value of this name."""
    if name in index.missing:
        return f"{name} could not come back from #{number}: {index.missing[name]}"
    there = ", ".join(index.names) or "none"
    return f"#{number} has set no {name}{nearest(name, index.names)}; its values are: {there}"


def _values(call: Call) -> Answer:
    options, number = call.arguments, call.reference.experiment
    names, renamed = tuple(options.words), getattr(options, "renamed", None) or ""
    if renamed and (len(names) != 1 or not renamed.isidentifier()):
        raise InvalidRequest(f"--as {renamed}: write one name of the job's before it, as in values 41 history --as h2")
    index = index_of(call.client, number, call.reference.trial or call.client.front(number))
    for name in names:
        if name not in index.names:
            raise NotFound(why_missing(number, index, name))
    texts = {name: text for name, text in index.values.items() if name in (names or index.names)}
    rows = [*texts.items(), *((name, f"not stored: {why}") for name, why in index.missing.items() if not names)]
    table = Table(VALUE_HEAD, rows, "the cell has set nothing")
    return Answer(index, [Bound(call.client, call.reference, names, renamed, table)], [f"{size(index.bytes)} in all"])


CELL_VALUES = Verb(
    "values",
    "list the values that a notebook's cell has set in its job; in a notebook, bind them there",
    _values,
    (
        NUMBER,
        argument("words", nargs="*", metavar="NAME", help="variables of the cell [all]"),
        argument("--as", metavar="NAME", help="bind it under another name", dest="renamed", host="notebook"),
        JSON,
    ),
    ("values 12", "values 12 history", "values 12 history --as h2"),
    takes="one experiment, or one trial, and names of its variables",
    client=("artifact",),
    job=("values",),
)
