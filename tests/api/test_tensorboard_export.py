"""Test that TensorBoard's event files have the same values as the API, for every trial."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jupyter_ext.job.job import Job
from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import NotFound
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from tests.api.served import Served, keep, report, started, submit, token_of
from tests.api.test_searching import begun, search, trained

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 3, 2) + b"the rest"
pytestmark = pytest.mark.skipif(find_spec("tensorboardX") is None, reason="tensorboardX is not installed")


def events(folder: Path) -> Iterator[Any]:
    """Read the event files of a run: records of a length, a checksum, a protocol buffer and a checksum."""
    from tensorboardX.proto.event_pb2 import Event

    (file,) = folder.glob("events.out.tfevents.*")
    data, at = file.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        yield Event.FromString(data[at + 12 : at + 12 + length])
        at += 16 + length


def scalars(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Return (step, value, time) of each scalar, by tag."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for event in events(folder):
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                found.setdefault(value.tag, []).append((event.step, value.simple_value, event.wall_time))
    return found


def single(value: float) -> float:
    """Return a number rounded to single precision, as in event files."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def expected(client: Client, number: int, trial: int) -> dict[str, list[tuple[int, float, float]]]:
    found: dict[str, list[tuple[int, float, float]]] = {}
    for each in client.reports(number, trial):
        for name, value in each.metrics.items():
            found.setdefault(f"{each.kind}/{name}", []).append((each.step, single(value), each.at))
        found.setdefault("epoch", []).append((each.step, each.epoch, each.at))
    return found


def test_a_training_is_written_as_the_api_tells_it_and_written_anew(
    service: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client, key, runs = service.client(), AttemptId(1, 1, 1), tmp_path / "runs"
    submit(client)
    reports = (report(2, loss=0.1, accuracy=1 / 3), report(3, loss=math.inf))
    client.deliver(key, token_of(service, key), Delivery(records=(started(), *reports)))
    keep(service, {"net.png": PNG, "table.csv": b"a,b"}, first=4)
    for _ in range(2):
        assert main(["export", "1", "--tensorboard", str(runs)]) == 0
        assert capsys.readouterr().out.splitlines()[0] == f"{runs}: 1 trial, 3 values"
    assert scalars(runs / "1.1") == expected(client, 1, 1)
    images = [value for event in events(runs / "1.1") for value in event.summary.value if value.HasField("image")]
    assert [(each.tag, each.image.width, each.image.encoded_image_string) for each in images] == [("net", 3, PNG)]
    with pytest.raises(NotFound):
        Job(1, client).to_tensorboard(runs, trial=7)
    assert main(["export", "--tensorboard", str(runs)]) == 2
    assert "takes an experiment or a trial" in capsys.readouterr().err
    if find_spec("tensorboard") is not None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        read = EventAccumulator(str(runs / "1.1")).Reload()
        assert {
            tag: [(each.step, each.value, each.wall_time) for each in read.Scalars(tag)]
            for tag in read.Tags()["scalars"]
        } == expected(client, 1, 1)


def test_each_trial_of_a_search_is_a_run_with_its_hyperparameters(
    served: Served, client: Client, tmp_path: Path
) -> None:
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    number = search(client, parallel=1)
    begun(client, number, 1)
    trained(served, client, number, 1, 0.5)
    folder = Job(number, client).to_tensorboard(tmp_path / "runs")
    rows = {row.trial: row for row in client.trial_rows(number)}
    assert {each.name for each in folder.iterdir()} == {f"{number}.{trial}" for trial in rows}
    assert scalars(folder / f"{number}.1") == expected(client, number, 1)
    told = {
        value.tag: HParamsPluginData.FromString(value.metadata.plugin_data.content)
        for event in events(folder / f"{number}.1")
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "hparams"
    }
    params = told["_hparams_/session_start_info"].session_start_info.hparams
    assert {name: value.number_value for name, value in params.items()} == rows[1].params
    assert [each.name.tag for each in told["_hparams_/experiment"].experiment.metric_infos] == ["validation/error"]
