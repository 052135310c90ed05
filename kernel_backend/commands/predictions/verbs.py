"""Define the verbs predict, predictions and evaluate: use a trained model on the rows of a dataset, on slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from kernel_backend.commands.answer import FAILED, OK, Answer, Started, Table, Text
from kernel_backend.commands.predictions.read import measured_checkpoints
from kernel_backend.commands.predictions.write import write_predictions
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument, count
from kernel_backend.definition.prediction_form import ON_BAD, SHARD_ROWS, TARGET
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.ids import parse_source, whole
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
    known = [parse_source(each) for each in subjects]  # all of them, before the first is submitted
    made = [import_module(SUBMIT).submit(call, "evaluation", each, given) for each in known]
    if options.wait is False or (options.follow and not options.wait):
        return Answer({"evaluations": made}, [Started(call.client, each, ()) for each in made])
    done, rows, code = list[Overview](), list[_Measured](), OK
    for subject, overview in zip(subjects, made, strict=True):
        ended, own = call.console.wait(call.client, overview, (), quiet=True)
        if ended is None:
            return Answer(None, code=own)
        code = code or (OK if ended.experiment.state == ExperimentState.COMPLETED else FAILED)
        done.append(ended)
        if ended.experiment.config.follows:
            found = measured_checkpoints(call.client, ended.experiment.number)
            rows += [_Measured(name, values, ended) for name, values in found.items()]
        else:
            rows.append(_Measured(subject, dict(ended.trials[0].metrics), ended))
    return Answer({"evaluations": done}, [_table(rows)], code=code)


class _Measured(NamedTuple):
    model: str
    values: dict[str, float]
    by: Overview


def _table(rows: Sequence[_Measured]) -> Table:
    """Return a table of models and what was measured, with a column for each value."""
    names = list(dict.fromkeys(name for each in rows for name in each.values))
    return Table(
        ("model", *names, "evaluation"),
        [
            (
                each.model,
                *(number(each.values[name]) if name in each.values else "" for name in names),
                f"#{each.by.experiment.number}",
            )
            for each in rows
        ],
        "there is no checkpoint to measure",
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
    help="a CSV, parquet or .npy file, a folder of files, a URL of these, or what the training's test_data, "
    "validation_data or train_data returns",
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
                help="measure all checkpoints that a training has kept, in place of its best one",
            ),
            argument(
                "--follow",
                action="store_true",
                help="measure each checkpoint while the training goes on, which gets the values as validations",
            ),
            argument("--target", metavar="COLUMN", help="column of a CSV or parquet file that has the targets"),
            *_OF_A_JOB,
        ),
        (
            "evaluate 12,14,20 --data test_data",
            "evaluate memes@production memes@candidate --data new.csv --target label",
            "evaluate 12 --each-checkpoint --data new.parquet --with judge.py",
            "evaluate 12 --follow --data validation_data --pool cpu",
        ),
        takes="models, experiments or trials",
        client=("submit", "upload_snapshot"),
        job=("evaluate",),
    ),
)
