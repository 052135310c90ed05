"""Define the verb export: a trained model as a folder, reports, trials or experiments as CSV, or event files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernel_backend.commands.answer import Answer, File, Text
from kernel_backend.commands.checkpoints import step_of
from kernel_backend.commands.exports.model import export_trained
from kernel_backend.commands.exports.tensorboard import write_tensorboard
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument
from kernel_backend.durable import replacing
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.checkpoints import CheckpointSelector
from kernel_backend.model.sizes import size
from kernel_backend.text import counted
from kernel_backend.text.csv_export import experiments_csv

MOST = 1000  # experiments in a list


def _export(call: Call) -> Answer:
    client, out = call.client, call.arguments.out
    reference = None if call.arguments.reference is None else call.reference
    if call.arguments.model is not None:
        return _model(call)
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
    if call.arguments.reference is None:
        raise InvalidRequest(f"--tensorboard takes an experiment or a trial: {call.command} 12 --tensorboard runs")
    if call.arguments.out is not None:
        raise InvalidRequest("--tensorboard names the folder, and --out the file of a CSV: give one of them")
    found = write_tensorboard(
        call.client, call.reference.experiment, call.reference.trial, Path(call.arguments.tensorboard)
    )
    line = f"{found.folder}: {counted(found.trials, 'trial')}, {counted(found.values, 'value')}"
    hint = f"to look at them: tensorboard --logdir {found.folder}"
    body = {"folder": str(found.folder), "trials": found.trials, "values": found.values}
    return Answer(body, [Text([line, hint])])


def _model(call: Call) -> Answer:
    options = call.arguments
    if options.reference is None:
        raise InvalidRequest(f"--model takes an experiment or a trial: {call.command} 12 --model digits")
    if options.out is not None or options.tensorboard is not None:
        raise InvalidRequest("--model names the folder of a model: give it without --out and --tensorboard")
    found = export_trained(
        call.client,
        call.reference,
        Path(options.model),
        CheckpointSelector(options.latest, options.best, options.step),
        version=call.version_of(options.reference),
        module=options.module,
        formats=[each for each in options.format.split(",") if each],
        force=options.force,
        trust="" if options.trust else "--trust",
    )
    lines = [f"{found.folder}: {size(found.bytes)}", f"proven in a process without Daylight: {found.proof}"]
    body = {"folder": str(found.folder), "bytes": found.bytes, "proof": found.proof, "notes": list(found.notes)}
    return Answer(body, [Text([*lines, f"to load it: see {found.folder}/README.md"])], notes=list(found.notes))


EXPORT = Verb(
    "export",
    "write a trained model as a folder, or reports, trials and the list of experiments as CSV or for TensorBoard",
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
        argument(
            "--model",
            metavar="DIR",
            help="write the trained model to this folder, which needs no Daylight, and prove it there",
            complete="file",
        ),
        argument("--format", metavar="F,G", default="", help="programs beside it: pt2 (torch.export), onnx"),
        argument("--best", action="store_true", help="the model of the best checkpoint [if it was validated]"),
        argument("--latest", action="store_true", help="of the newest [if nothing was validated]"),
        argument("--step", metavar="S", type=step_of, help="of this step", complete="step"),
        argument(
            "--module", metavar="NAME", default="auto", help="which module of a program with several [the only one]"
        ),
        argument("--force", action="store_true", help="replace an earlier export there"),
        argument("--trust", action="store_true", help="run another user's code to make their model"),
        JSON,
    ),
    (
        "export 12 --model digits",
        "export 12 -o metrics.csv",
        "export > experiments.csv",
        "export 12 --tensorboard runs",
    ),
    takes="an experiment, a trial, or nothing",
    client=("export",),
    job=("export", "export_model", "to_tensorboard"),
)
