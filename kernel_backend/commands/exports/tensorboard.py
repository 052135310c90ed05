"""Write the reports of an experiment as event files of TensorBoard, a folder for each trial."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.record import Value
from kernel_backend.model.reports import StoredReport

if TYPE_CHECKING:
    from tensorboardX.writer import FileWriter

SUFFIX = ".daylight"  # of our event files, which the next export replaces
_PNG = b"\x89PNG\r\n\x1a\n"


class Written(NamedTuple):
    """Result of an export: the folder, and the numbers of trials and values written."""

    folder: Path
    trials: int
    values: int


def write_tensorboard(client: Client, number: int, trial: int | None, folder: Path) -> Written:
    """Write the scalars, hyperparameters and PNG artifacts of an experiment's trials, or of one, below a folder.

    Each trial gets a run, a subfolder such as `12.3`; an earlier export of it is replaced. Raises InvalidRequest if
    tensorboardX is missing or the folder cannot be written, and NotFound if there is no such experiment or trial.
    """
    if find_spec("tensorboardX") is None:
        raise InvalidRequest('event files need tensorboardX: pip install "daylight[tensorboard]"')
    artifacts = [each for each in client.artifacts(number) if each.media == "image/png"]
    values = trials = 0
    folder = folder.expanduser()
    try:
        for index, params in _trials(client, number, trial):
            own = [each for each in artifacts if each.trial == index]
            values += _write_trial(client, folder / f"{number}.{index}", params, client.reports(number, index), own)
            trials += 1
    except OSError as error:
        raise InvalidRequest(f"cannot write to {folder}: {error.strerror or error}") from error
    return Written(folder, trials, values)


def _trials(client: Client, number: int, trial: int | None) -> Iterable[tuple[int, Mapping[str, Value]]]:
    """Yield the index and the hyperparameters of each trial, or only of `trial` if it is set; raises NotFound."""
    overview = client.experiment(number)
    if overview.experiment.config.search is None:
        found = {each.index: each.params for each in overview.trials}
    else:
        fixed = overview.experiment.params
        found = {each.trial: {**fixed, **each.params} for each in client.trial_rows(number, sort="trial")}
    if trial is not None and trial not in found:
        raise NotFound(f"there is no trial {number}.{trial}: `daylight trials {number}` shows those there are")
    return ((index, params) for index, params in found.items() if trial in (None, index))


def _write_trial(
    client: Client,
    folder: Path,
    params: Mapping[str, Value],
    reports: Iterable[StoredReport],
    artifacts: Iterable[Artifact],
) -> int:
    """Write the event file of one trial into `folder`; return the number of scalars in it.

    The file has the hyperparameters `params`, the metrics of `reports` as scalars, and the PNG files in `artifacts`.
    Event files of an earlier export are deleted.
    """
    from tensorboardX.writer import FileWriter

    folder.mkdir(parents=True, exist_ok=True)
    for earlier in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
        earlier.unlink()
    writer, reports = FileWriter(str(folder), filename_suffix=SUFFIX), list(reports)
    try:
        _add_params(writer, params, sorted({f"{each.kind}/{name}" for each in reports for name in each.metrics}))
        count = sum(_add_report(writer, each) for each in reports)
        for artifact in artifacts:
            data = client.artifact(int(folder.name.partition(".")[0]), artifact.trial, artifact.name)
            _add_image(writer, artifact, data)
    finally:
        writer.close()
    return count


def _add_params(writer: FileWriter, params: Mapping[str, Value], metrics: Iterable[str]) -> None:
    """Write the hyperparameters for TensorBoard's tab HPARAMS; `metrics` are the names of the scalars that it lists."""
    from tensorboardX.summary import hparams

    plain = {
        name: value if isinstance(value, bool | int | float | str) else _text(value) for name, value in params.items()
    }
    for summary in hparams(plain, dict.fromkeys(metrics, 0.0)):
        writer.add_summary(summary)


def _text(value: Value) -> str:
    return json.dumps(value, default=str)


def _add_report(writer: FileWriter, report: StoredReport) -> int:
    from tensorboardX.proto.summary_pb2 import Summary

    found: dict[str, float] = {f"{report.kind}/{name}": value for name, value in report.metrics.items()}
    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in found.items()]
    values.append(Summary.Value(tag="epoch", simple_value=report.epoch))
    writer.add_summary(Summary(value=values), report.step, report.at)
    return len(found)


def _add_image(writer: FileWriter, artifact: Artifact, data: bytes) -> None:
    """Write a PNG as it is, without decoding it."""
    from tensorboardX.proto.summary_pb2 import Summary

    if data[:8] != _PNG or len(data) < 24:
        return
    width, height = struct.unpack(">II", data[16:24])
    image: Any = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=data)
    writer.add_summary(Summary(value=[Summary.Value(tag=artifact.name, image=image)]), artifact.step, artifact.at)
