"""Define the verbs predict, predictions and evaluate: use a trained model on the rows of a dataset, on slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from kernel_backend.client import Client
from kernel_backend.commands.answer import FAILED, OK, Answer, Started, Table, Text
from kernel_backend.commands.predictions.write import write_predictions
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument, count
from kernel_backend.definition.prediction_form import ON_BAD, SHARD_ROWS, TARGET
from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.ids import Reference, parse_source, parse_subject, whole
from kernel_backend.model.states import ExperimentState
from kernel_backend.model.views.overview import Overview
from kernel_backend.spec.options import OPTIONS, TRUST, Option
from kernel_backend.text import number

SUBMIT = "jupyter_ext.submit.predict"  # imported by name: this package must not depend on jupyter_ext
_FLAGS = {"--batch-size", "--seed", "--env", "--max-restarts", "--include"}
_VIEW = {"--name", "--tag", "--note", "--wait", "--no-wait", "--quiet", "--json"}


def _predict(call: Call) -> Answer:
    options = call.arguments
    to = None if options.to is None else Path(options.to).expanduser()
    if to is not None and to.suffix not in ("", ".parquet", ".npy"):
        raise InvalidRequest(f"--to {to.name}: name a .parquet or .npy file, or a folder")
    given = {name: value for name in (ON_BAD, SHARD_ROWS) if (value := getattr(options, name)) is not None}
    overview = import_module(SUBMIT).submit(call, "prediction", options.reference, given)
    made = overview.experiment.number
    fetch = f"{call.program} predictions {made} --to {options.to or 'predictions.parquet'}"
    if not call.console.waits(options.wait or (to is not None and options.wait is None)):
        return Answer(
            overview, [Started(call.client, overview, (), "" if options.quiet else f"{fetch} when it has ended")]
        )
    ended, code = call.console.wait(call.client, overview, (), bool(options.quiet))
    if ended is None or code != OK:
        return Answer(None, code=code)
    if ended.experiment.state != ExperimentState.COMPLETED:
        return Answer(ended, code=FAILED)
    if to is None:
        return Answer(ended, [Text([f"to have them in a file: {fetch}"])])
    return _written(call, made, to)


def _predictions(call: Call) -> Answer:
    return _written(call, whole(call.reference), Path(call.arguments.to).expanduser())


def _evaluate(call: Call) -> Answer:
    options = call.arguments
    subjects = [each for word in options.words for each in word.split(",") if each]
    if not subjects:
        raise InvalidRequest(f"{call.command} takes models: write {call.command} 12,14 --data test_data")
    given = {TARGET: options.target} if options.target else {}
    if options.each_checkpoint:
        subjects = [own for each in subjects for own in _checkpoints(call.client, each)]
    known = [parse_source(each) for each in subjects]  # all of them, before the first is submitted
    made = [import_module(SUBMIT).submit(call, "evaluation", each, given) for each in known]
    if options.wait is False:
        return Answer({"evaluations": made}, [Started(call.client, each, ()) for each in made])
    rows, code = [], OK
    for subject, overview in zip(subjects, made, strict=True):
        ended, own = call.console.wait(call.client, overview, (), quiet=True)
        if ended is None:
            return Answer(None, code=own)
        code = code or (OK if ended.experiment.state == ExperimentState.COMPLETED else FAILED)
        rows.append((subject, ended))
    return Answer({"evaluations": [each for _, each in rows]}, [_measured(rows)], code=code)


def _checkpoints(client: Client, subject: str) -> list[str]:
    """Return references to all checkpoints of a trial, in the order of their steps."""
    named = parse_subject(subject)
    if not isinstance(named, Reference):
        raise InvalidRequest(f"{subject} is one checkpoint: --each-checkpoint takes an experiment or a trial")
    trial = named.trial or client.front(named.experiment)
    steps = sorted({each.step for each in client.checkpoints(named.experiment) if each.trial == trial})
    if not steps:
        raise NotFound(f"{named.experiment}.{trial} has no checkpoint yet")
    return [f"{named.experiment}.{trial}@{step}" for step in steps]


def _measured(rows: Sequence[tuple[str, Overview]]) -> Table:
    """Return a table of models and what was measured, with a column for each value."""
    values = [dict(overview.trials[0].metrics) for _, overview in rows]
    names = list(dict.fromkeys(name for each in values for name in each))
    return Table(
        ("model", *names, "evaluation"),
        [
            (subject, *(number(own[name]) if name in own else "" for name in names), f"#{made.experiment.number}")
            for (subject, made), own in zip(rows, values, strict=True)
        ],
        "",
    )


def _written(call: Call, number: int, to: Path) -> Answer:
    files = [str(each) for each in write_predictions(call.client, number, to)]
    return Answer({"experiment": number, "files": files}, [Text(files)])


_MODEL = argument(
    "reference",
    metavar="NUMBER",
    type=parse_source,
    help="an experiment, a trial, its checkpoint as 12.1@500, or a registered model such as memes@production",
    complete="experiment",
)
_DATA = argument(
    "--data",
    metavar="DATA",
    help="a CSV, parquet or .npy file, a folder of files, or what the training's test_data, validation_data or "
    "train_data returns",
    complete="file",
)


def _with(functions: str) -> Option:
    return argument("--with", metavar="FILE.py", dest="module", help=f"file with {functions}", complete="file")


_OF_A_JOB = (
    TRUST,
    *(replace(each, group="") for each in OPTIONS if each.group == "resources" or _FLAGS & set(each.flags)),
    *(each for each in OPTIONS if _VIEW & set(each.flags)),
)
VERBS = (
    Verb(
        "predict",
        "predict the rows of a dataset with a trained model, on slots, each row once",
        _predict,
        (
            _MODEL,
            _DATA,
            _with("predict(model, batch), post(output) or predict_data()"),
            argument(
                "--to", metavar="OUT", help="wait, and write a .parquet or .npy file, or a folder", complete="file"
            ),
            argument(
                "--on-bad",
                metavar="WHAT",
                choices=("fail", "skip"),
                help="of a row that raises: fail, or skip and list it [fail]",
            ),
            argument(
                "--shard-rows",
                metavar="N",
                type=count,
                help="rows that are stored at once [256 batches, of few rows fewer]",
            ),
            *_OF_A_JOB,
        ),
        (
            "predict memes@production --data new.parquet --to out.parquet",
            "predict 12 --data test_data --slots 1..4",
            "predict 12.7 --data photos --with photos.py --on-bad skip --to out.parquet",
        ),
        takes="a model, an experiment or a trial",
        client=("submit", "upload_snapshot"),
        job=("predict",),
    ),
    Verb(
        "predictions",
        "write the predictions of an experiment to a file",
        _predictions,
        (
            NUMBER,
            argument(
                "--to", metavar="OUT", required=True, help="a .parquet or .npy file, or a folder", complete="file"
            ),
            JSON,
        ),
        ("predictions 13 --to out.parquet", "predictions 13 --to out.npy"),
        client=("artifact",),
        job=("predictions",),
    ),
    Verb(
        "evaluate",
        "measure trained models on a dataset, on slots, and compare them in a table",
        _evaluate,
        (
            argument("words", nargs="*", metavar="MODEL", help="models as for predict, as 12,14 memes@production"),
            _DATA,
            _with("evaluate(model, batch) or evaluate_data()"),
            argument(
                "--each-checkpoint",
                action="store_true",
                help="measure all checkpoints of a trial, in place of its best one",
            ),
            argument("--target", metavar="COLUMN", help="column of a CSV or parquet file that has the targets"),
            *_OF_A_JOB,
        ),
        (
            "evaluate 12,14,20 --data test_data",
            "evaluate memes@production memes@candidate --data new.csv --target label",
            "evaluate 12 --each-checkpoint --data new.parquet --with judge.py",
        ),
        takes="models, experiments or trials",
        client=("submit", "upload_snapshot"),
        job=("evaluate",),
    ),
)
