"""Define the verb export: reports, trials or the list of experiments as CSV, or event files of TensorBoard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernel_backend.commands.answer import Answer, File, Text
from kernel_backend.commands.exports.tensorboard import write_tensorboard
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument
from kernel_backend.durable import replacing
from kernel_backend.errors import InvalidRequest
from kernel_backend.text import counted
from kernel_backend.text.csv_export import experiments_csv

MOST = 1000  # experiments in a list


def _export(call: Call) -> Answer:
    client, reference, out = call.client, call.arguments.reference, call.arguments.out
    if call.arguments.tensorboard is not None:
        return _tensorboard(call)
    if reference is None:
        text = experiments_csv(client.experiments(limit=MOST))
    else:
        text = client.export(reference.experiment, reference.trial)
    if out is None:
        return Answer({"csv": text}, [File(text)])
    path = Path(out).expanduser()
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise InvalidRequest(f"cannot write to {path}: {error.strerror or error}") from error
    return Answer({"file": str(path)}, [Text([f"{path}: {counted(text.count(chr(10)) - 1, 'row')}"])])


def _tensorboard(call: Call) -> Answer:
    reference = call.arguments.reference
    if reference is None:
        raise InvalidRequest(f"--tensorboard takes an experiment or a trial: {call.command} 12 --tensorboard runs")
    if call.arguments.out is not None:
        raise InvalidRequest("--tensorboard names the folder, and --out the file of a CSV: give one of them")
    found = write_tensorboard(call.client, reference.experiment, reference.trial, Path(call.arguments.tensorboard))
    line = f"{found.folder}: {counted(found.trials, 'trial')}, {counted(found.values, 'value')}"
    hint = f"to look at them: tensorboard --logdir {found.folder}"
    body = {"folder": str(found.folder), "trials": found.trials, "values": found.values}
    return Answer(body, [Text([line, hint])])


EXPORT = Verb(
    "export",
    "print reports, the trials of a search, or the list of experiments as CSV, or write them for TensorBoard",
    _export,
    (
        replace(
            NUMBER,
            help="an experiment, or a trial as 12.7; none: all your experiments",
            kwargs={**NUMBER.kwargs, "nargs": "?"},
        ),
        argument("--out", "-o", metavar="FILE", help="write to this file", complete="file"),
        argument(
            "--tensorboard", metavar="DIR", help="write event files of TensorBoard to this folder", complete="file"
        ),
        JSON,
    ),
    ("export 12", "export 12.7 -o metrics.csv", "export > experiments.csv", "export 12 --tensorboard runs"),
    takes="an experiment, a trial, or nothing",
    client=("export",),
    job=("export", "to_tensorboard"),
)
