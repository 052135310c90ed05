"""Test that expired logs and reports of ended experiments are removed, and that all needed data stays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from traitlets import TraitError

from kernel_backend.app import Daylight
from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import NotFound
from kernel_backend.home import attempt_folder
from kernel_backend.model.disk import DAY_S
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from tests.api.committed import commit
from tests.api.served import TOKEN, Served, StillEngine, ended, keep, report, started, submit, token_of

KEEP_S = 90 * DAY_S
KEYS = AttemptId(1, 1, 1), AttemptId(2, 1, 1)


def end_before(served: Served, number: int, days: float) -> None:
    served.service._store.update_experiment(
        number, time.time(), lambda _: ({"ended_at": time.time() - days * DAY_S}, None)
    )


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[Served, Client]]:
    """Provide #1, which ended 100 days ago, and #2, 10 days ago, with log, code and reports.

    #1 has a checkpoint and artifact.
    """
    served = Served(tmp_path, StillEngine(), keep_logs=KEEP_S)
    client = served.client()
    for key in KEYS:
        submit(client, name=f"digits {key.experiment}")
        client.deliver(key, token_of(served, key), Delivery(records=(started(), report(2), report(3, 2.0))))
        folder = attempt_folder(tmp_path, key)
        (folder / "code").mkdir(parents=True, exist_ok=True)
        (folder / "code" / "cell.py").write_bytes(b"x" * 300)
        (folder / "rank-0.log").write_bytes(b"y" * 500)
        if key.experiment == 1:
            commit(tmp_path, 10, loss=0.1)
            keep(served, {"net": b"x" * 1000}, first=4)
        ended(served, client, key)
    end_before(served, 1, days=100)
    end_before(served, 2, days=10)
    yield served, client
    client.close()
    served.stop()


def files(home: Path, key: AttemptId) -> list[str]:
    return sorted(each.name for each in attempt_folder(home, key).rglob("*") if each.is_file())


def test_a_dry_run_names_the_logs_that_would_go(kept: tuple[Served, Client]):
    served, client = kept
    before = files(served.home, KEYS[0])
    (found,) = client.collect(dry_run=True).logs
    assert (found.experiment, found.days) == (1, 100)
    assert found.bytes >= 800
    assert files(served.home, KEYS[0]) == before != []


def test_the_logs_of_an_experiment_go_and_nothing_that_others_need(kept: tuple[Served, Client]):
    served, client = kept

    def needed() -> list[object]:
        read = [client.curves(1), client.reports(1), client.checkpoints(1), client.diff(1, 2), client.source(1)]
        return [*read, client.experiment(1).trials, client.artifact(1, 1, "net")]

    before, recent = needed(), files(served.home, KEYS[1])
    (found,) = client.collect().logs
    assert found.experiment == 1
    assert (files(served.home, KEYS[0]), files(served.home, KEYS[1])) == ([], recent)
    assert needed() == before
    assert client.collect().logs == ()
    assert "attempts" not in client.usage_of(1).bytes
    with pytest.raises(NotFound, match=r"logs of experiment #1 are removed: the service keeps them for 90 days"):
        client.logs(1)
    assert client.logs(2).text
    assert served.service.numbering._in_workspace("dave") == 2  # their numbers are not used again
    assert client.rerun(1).experiment.number == 3


def test_the_service_removes_them_by_itself(kept: tuple[Served, Client]):
    served, client = kept
    served.service._retention.remove_expired(time.time())
    assert files(served.home, KEYS[0]) == []
    assert files(served.home, KEYS[1])
    served.service._retention.remove_expired(time.time() + KEEP_S)
    assert files(served.home, KEYS[1]) == []
    assert client.curves(2).curves


def test_without_the_setting_all_logs_stay(tmp_path: Path):
    served = Served(tmp_path, StillEngine())
    client = served.client()
    try:
        submit(client)
        token_of(served, KEYS[0])
        folder = attempt_folder(tmp_path, KEYS[0])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rank-0.log").write_bytes(b"y" * 500)
        ended(served, client, KEYS[0])
        end_before(served, 1, days=4000)
        assert client.collect().logs == ()
        assert client.logs(1).text
        assert "rank-0.log" in files(tmp_path, KEYS[0])
    finally:
        client.close()
        served.stop()


def test_gc_tells_of_logs(
    kept: tuple[Served, Client], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    served, _ = kept
    monkeypatch.setenv("DAYLIGHT_URL", served.url)
    monkeypatch.setenv("DAYLIGHT_TOKEN", TOKEN)
    assert main(["gc", "--dry-run"]) == 0
    *_, line, checkpoints, logs = capsys.readouterr().out.splitlines()
    assert line.startswith("1  logs and code  ")
    assert line.endswith("  ended 100 days ago")
    assert checkpoints == "no checkpoints would go"
    assert logs.startswith("logs of 1 ended experiment would go, ")


@pytest.fixture
def long(tmp_path: Path) -> Iterator[tuple[Served, Client]]:
    """Provide #1, which ended 400 days ago, and #2, 10 days ago, each with 1,500 training reports and a validation."""
    served = Served(tmp_path, StillEngine(), keep_reports=365 * DAY_S)
    client = served.client()
    for key in KEYS:
        submit(client, name=f"digits {key.experiment}")
        training = [report(number).model_copy(update={"kind": "training"}) for number in range(2, 1502)]
        client.deliver(key, token_of(served, key), Delivery(records=(started(), *training, report(1502))))
        ended(served, client, key)
    end_before(served, 1, days=400)
    end_before(served, 2, days=10)
    yield served, client
    client.close()
    served.stop()


def test_reports_are_thinned_and_results_stay(
    long: tuple[Served, Client], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    served, client = long
    monkeypatch.setenv("DAYLIGHT_URL", served.url)
    monkeypatch.setenv("DAYLIGHT_TOKEN", TOKEN)
    before = client.reports(1, kind="validation"), client.experiment(1).trials
    assert main(["gc", "--dry-run"]) == 0
    assert "1  training reports  500 of 1,500  ended 400 days ago" in capsys.readouterr().out
    assert len(client.reports(1, kind="training")) == 1500
    (found,) = client.collect().reports
    assert (found.experiment, found.removed, found.of) == (1, 500, 1500)
    assert [len(client.reports(number, kind="training")) for number in (1, 2)] == [1000, 1500]
    assert (client.reports(1, kind="validation"), client.experiment(1).trials) == before
    assert client.diff(1, 2).results.identical is not False  # reports of the same steps are equal
    assert client.collect().reports == ()


@pytest.mark.parametrize("text", ["soon", "30s", "0d", "-1d"])
@pytest.mark.parametrize("setting", ["keep_logs", "keep_reports"])
def test_a_time_that_is_none_is_refused(setting: str, text: str):
    with pytest.raises(TraitError, match=f"{setting}: "):
        Daylight(**{setting: text})
