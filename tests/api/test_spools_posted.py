"""Test that a launcher posts its ranks' spool in pages, and skips records that the service refuses for good."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_backend.api.attempts import RecordsHandler
from kernel_backend.client import Client
from kernel_backend.launch.deliveries import Deliveries
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.measuring import Measuring
from kernel_backend.launch.spool_uploader import SpoolUploader
from kernel_backend.launch.times import TimesReader
from kernel_backend.launch.utilisation.sampler import UseSampler
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Report
from tests.api.served import Served, started, submit, token_of
from tests.support.world import until

FIRST = AttemptId(1, 1, 1)


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    """Provide the folder of an attempt whose rank 0 has started."""
    found = AttemptFolder(tmp_path / "attempt")
    found.path.mkdir()
    append(found, started().model_dump_json())
    return found


@pytest.fixture
def post(served: Served, client: Client, folder: AttemptFolder) -> Iterator[Callable[[], SpoolUploader]]:
    """Provide a function that begins to upload the folder's spool."""
    submit(client)
    token = token_of(served, FIRST)
    folder.write("token", token.encode())
    job: LaunchSpec = served.engine.jobs[FIRST]
    couriers: list[SpoolUploader] = []
    measuring = Measuring(TimesReader(folder, {0: "here"}), UseSampler(job.placement[0], [0], dict))  # not started

    def begin() -> SpoolUploader:
        here = {"service_url": served.url, "service_uid": os.getuid()}
        deliveries = Deliveries(folder, job.model_copy(update=here), lambda told: None, measuring)
        couriers.append(SpoolUploader(folder, deliveries))
        couriers[-1].start()
        return couriers[-1]

    yield begin
    for each in couriers:
        each.finish()


def append(folder: AttemptFolder, *lines: str) -> None:
    with folder.spool.open("a") as spool:
        spool.writelines(f"{each}\n" for each in lines)


def report(number: int, metrics: int = 1, name: str = "m") -> str:
    values = {f"{name}{index}": 1 / (index + number) for index in range(metrics)}
    return Report(number=number, at=5.0, kind="training", step=number, epoch=0.1, metrics=values).model_dump_json()


def accepted(served: Served) -> int:
    return served.service._store.attempt(FIRST).accepted


def test_what_has_waited_for_a_service_goes_over_however_much_each_step_says(served, folder, post):
    append(folder, *(report(number, metrics=300) for number in range(2, 1501)))  # 12 MiB: more than one body may be
    post()
    until(lambda: accepted(served) == 1500, "all are taken")


def test_what_is_too_large_is_dropped_and_told_and_what_comes_after_it_is_not(
    served, client, folder, post, monkeypatch
):
    monkeypatch.setattr(RecordsHandler, "body_limit", 20_000)
    append(folder, *(report(number, metrics=20) for number in range(2, 100)))
    append(folder, report(100, name="x" * 30_000), report(101))
    post()
    until(lambda: accepted(served) == 101, "all that can be are taken")
    assert [each.step for each in client.reports(1)] == [*range(2, 100), 101]
    (told,) = until(lambda: client.experiment(1).warnings, "it is told")
    assert "a line of its spool is left out; record 100: the body is larger" in told


def test_lines_that_are_no_records_are_told_once_and_again_only_when_there_are_many_more(served, client, folder, post):
    append(folder, "no record", report(2), '{"number": 1}', report(1), report(3))
    courier = post()
    until(lambda: accepted(served) == 3, "all that can be are taken")
    append(folder, *["more"] * 5, report(4))
    until(lambda: accepted(served) == 4, "it goes on")
    courier.finish()
    (told,) = client.experiment(1).warnings
    assert "3 lines of its spool are left out; the line at byte" in told
    assert [each.step for each in client.reports(1)] == [2, 3, 4]


def test_nothing_is_dropped_by_a_service_that_refuses_every_word(served, folder, post, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(RecordsHandler, "body_limit", 5)
    append(folder, report(2))
    post()
    until(lambda: "does not take records now" in caplog.text, "all is refused")
    monkeypatch.undo()
    until(lambda: accepted(served) == 2, "it is taken when the service takes something again")
