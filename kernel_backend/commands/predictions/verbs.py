"""Define the verbs predict and predictions: predict the rows of a dataset on slots, and fetch what was predicted."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

from kernel_backend.commands.answer import FAILED, OK, Answer, Started, Text
from kernel_backend.commands.predictions.write import write_predictions
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument, count
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.ids import whole
from kernel_backend.model.states import ExperimentState
from kernel_backend.spec.options import OPTIONS, TRUST

SUBMIT = "jupyter_ext.submit.predict"  # imported by name: this package must not depend on jupyter_ext
_FLAGS = {"--batch-size", "--seed", "--env", "--max-restarts", "--include"}
_VIEW = {"--name", "--tag", "--note", "--wait", "--no-wait", "--quiet", "--json"}


def _predict(call: Call) -> Answer:
    options = call.arguments
    to = None if options.to is None else Path(options.to).expanduser()
    if to is not None and to.suffix not in ("", ".parquet", ".npy"):
        raise InvalidRequest(f"--to {to.name}: name a .parquet or .npy file, or a folder")
    overview = import_module(SUBMIT).submit(call)
    number = overview.experiment.number
    fetch = f"{call.program} predictions {number} --to {options.to or 'predictions.parquet'}"
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
    return _written(call, number, to)


def _predictions(call: Call) -> Answer:
    return _written(call, whole(call.reference), Path(call.arguments.to).expanduser())


def _written(call: Call, number: int, to: Path) -> Answer:
    files = [str(each) for each in write_predictions(call.client, number, to)]
    return Answer({"experiment": number, "files": files}, [Text(files)])


_OWN = (
    replace(NUMBER, help="a registered model such as memes@production, an experiment or a trial"),
    argument(
        "--data",
        metavar="DATA",
        help="a CSV, parquet or .npy file, a folder of files, or what the training's test_data, validation_data or "
        "train_data returns",
        complete="file",
    ),
    argument(
        "--with",
        metavar="FILE.py",
        dest="module",
        help="file with predict(model, batch), post(output) or predict_data()",
        complete="file",
    ),
    argument("--to", metavar="OUT", help="wait, and write a .parquet or .npy file, or a folder", complete="file"),
    argument(
        "--on-bad",
        metavar="WHAT",
        choices=("fail", "skip"),
        help="of a row that raises: fail, or skip and list it [fail]",
    ),
    argument(
        "--shard-rows", metavar="N", type=count, help="rows that are stored at once [256 batches, of few rows fewer]"
    ),
    TRUST,
)
VERBS = (
    Verb(
        "predict",
        "predict the rows of a dataset with a trained model, on slots, each row once",
        _predict,
        (
            *_OWN,
            *(replace(each, group="") for each in OPTIONS if each.group == "resources" or _FLAGS & set(each.flags)),
            *(each for each in OPTIONS if _VIEW & set(each.flags)),
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
)
