"""Test the data that views request over HTTP: whole curves, ends of logs and lists, as strict JSON."""

from __future__ import annotations

import json
import math
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from jupyter_ext.views.comm_api import answer
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery, Report
from kernel_backend.model.views.curves import ReportedValues
from kernel_backend.service.state.start_phases import StartPhases
from kernel_backend.service.views.curves import CurveReader
from kernel_backend.service.views.overviews import Overviews
from kernel_backend.snapshots.archive import Archive
from tests.api.served import DEFINITION, TOKEN, archive, report, started, submit, token_of

KEY = AttemptId(1, 1, 1)


@pytest.fixture
def token(served, client) -> str:
    submit(client)
    return token_of(served, KEY)


@pytest.fixture
def tell(served, token):
    """Have the first attempt report losses at these steps, as if it had posted them."""

    def told(steps: range, number: int | None = None) -> None:
        first = number or steps[0]
        losses = [
            Report(number=place, at=step / 10, kind="training", step=step, epoch=step / 100, metrics={"loss": 1 / step})
            for place, step in enumerate(steps, first)
        ]
        served.service._store.accept(KEY, losses, at=1.0)

    return told


def test_an_experiment_without_reports_has_no_curves(client, token):
    found = client.curves(1)
    assert (found.trial, found.curves, found.seq) == (1, (), 0)


def test_curves_hold_every_report_that_was_told(client, token):
    client.deliver(KEY, token, Delivery(records=(started(), report(2, loss=0.5, f1=0.25), report(3, loss=0.25))))
    loss, f1 = (found := client.curves(1)).curves
    assert (loss.kind, loss.metric, loss.step, loss.mean, loss.last) == (
        "validation",
        "loss",
        (2, 3),
        (0.5, 0.25),
        0.25,
    )
    assert (f1.metric, f1.step, f1.mean) == ("f1", (2,), (0.25,))
    assert found.seq == client.reports(1)[-1].seq


def test_a_long_curve_is_thinned_to_as_many_points_as_were_asked(client, tell):
    tell(range(1, 5001))
    for points in (10, 333, 400, 2000):
        (loss,) = client.curves(1, points=points).curves
        assert len(loss.step) <= points
        assert sum(loss.size) == 5000
        assert (loss.high[0], loss.last, loss.step[-1]) == (1.0, 1 / 5000, 5000)
        assert all(low <= mean <= high for low, mean, high in zip(loss.low, loss.mean, loss.high, strict=True))


def test_a_curve_that_was_asked_for_before_grows_and_takes_late_reports_in(client, tell):
    for begin in (1, 4, 11):
        tell(range(begin, begin + 3))
        found = client.curves(1)
        assert found.seq == client.reports(1)[-1].seq
        assert client.curves(1) == found
    tell(range(7, 11), number=14)
    (loss,) = client.curves(1).curves
    assert loss.step == tuple(range(1, 14))
    assert loss.mean == tuple(1 / step for step in range(1, 14))


def test_what_is_not_finite_is_broken_and_travels_as_strict_json(served, client, token):
    values = [1.0, math.nan, math.inf, -math.inf, 1e200, 2.0, math.nan]
    records = [report(number, loss=value) for number, value in enumerate(values, 1)]
    client.deliver(KEY, token, Delivery(records=tuple(records)))
    (loss,) = client.curves(1).curves
    assert loss.mean == loss.low == loss.high == (1.0, None, None, None, None, 2.0, None)
    assert loss.broken == (1, 2, 3, 4, 6)
    assert math.isnan(loss.last or 0.0)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    raw = httpx.get(f"{served.url}/api/experiments/1/curves", headers=headers, trust_env=False)
    assert raw.headers["Content-Type"].startswith("application/json")
    body = json.loads(raw.text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert body["curves"][0]["last"] == "NaN"


def test_curves_of_what_is_not_there_are_not_found(client, token):
    with pytest.raises(NotFound, match="#7"):
        client.curves(7)
    with pytest.raises(NotFound, match=r"trial 1\.2"):
        client.curves(1, trial=2)
    for points in (9, 2001):
        with pytest.raises(InvalidRequest, match=f"points={points}: must be a whole number from 10 to 2000"):
            client.curves(1, points=points)


def test_many_who_ask_while_a_curve_grows_each_get_a_whole_one(served, client, tell):
    def ask(_: int) -> tuple[int, ...]:
        own = served.client()
        (loss,) = own.curves(1, points=2000).curves
        own.close()
        return loss.step

    tell(range(1, 100))
    with ThreadPoolExecutor(4) as pool:
        asked = pool.map(ask, range(12))
        for begin in range(100, 1000, 100):
            tell(range(begin, begin + 100))
        for steps in asked:
            assert steps == tuple(range(1, len(steps) + 1))
    assert ask(0) == tuple(range(1, 1000))


def test_what_was_read_of_a_trial_is_not_read_again_and_is_let_go_of_when_there_is_too_much(served, client, tell):
    asked: list[int] = []
    store = served.service._store

    class Watched:
        def trial(self, number: int, trial: int):
            return store.trial(number, trial)

        def reported_values(self, number: int, trial: int, after: int) -> ReportedValues:
            asked.append(after)
            return store.reported_values(number, trial, after)

    submit(client)
    tell(range(1, 11))
    newest = client.reports(1)[-1].seq
    kept, forgetful = CurveReader(Watched(), kept=10), CurveReader(Watched(), kept=9)
    for reader, after in ((kept, newest), (forgetful, 0)):
        for number in (1, 1, 2, 1):
            served.run(reader.curves(number, 1, 400))
        assert asked == [0, newest, 0, after]  # one that is too large alone is kept until another is asked for
        asked.clear()


def test_a_picture_of_a_long_training_is_drawn(client, tell):
    tell(range(1, 5001))
    assert client.picture(1).startswith(b"\x89PNG")


def test_a_logs_tail_is_read_over_http(client, token):
    whole, tail = client.logs(1), client.logs(1, tail=8)
    assert (whole.text, tail.text) == ("hello\nworld\n", "world\n")
    assert tail.offset == tail.size == whole.offset
    assert client.logs(1, offset=tail.offset).text == ""
    with pytest.raises(InvalidRequest, match="tail=8 and offset=0: give one of them"):
        client.logs(1, offset=0, tail=8)
    for size in (0, 2**20 + 1):
        with pytest.raises(InvalidRequest, match=f"tail={size}: must be a whole number from 1 to 1048576"):
            client.logs(1, tail=size)


def test_a_start_says_its_phase_until_the_first_step_is_taken(client, token):
    assert client.experiment(1).starting.startswith("preparing 1 slot: copying files, starting processes (")
    client.deliver(KEY, token, Delivery(phase="loading", phase_seconds=75))
    said = r"preparing 1 slot: running the captured code \(1 min 1\d s\); longer than usual: look at the log"
    assert re.fullmatch(said, client.experiment(1).starting)
    client.deliver(KEY, token, Delivery(records=(started(),), phase="first step"))
    assert re.fullmatch(r"taking the first step \(\d s\)", client.experiments()[0].starting)
    client.deliver(KEY, token, Delivery(records=(report(2),), phase="step"))
    assert client.experiment(1).starting == ""


def test_a_list_shows_each_experiment_as_it_is_shown_alone(served, client, token):
    client.deliver(KEY, token, Delivery(records=(started(), report(2))))
    submit(client, name="waits", slots=2)
    submit(client, name="waits longer")
    listed = client.experiments()
    assert [each.experiment.name for each in listed] == ["waits longer", "waits", "digits"]
    assert [each.state for each in listed] == ["queued", "queued", "running"]
    assert [each.wait and each.wait.place for each in listed] == [2, 1, None]
    assert listed == [client.experiment(number) for number in (3, 2, 1)]


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"PK")])
def test_a_damaged_snapshot_is_a_warning_and_hides_no_experiment(served, client, damage):
    submit(client)
    for file in (served.home / "snapshots").glob("*.zip"):
        damage(file)
    pictures, store = served.service._loop.cluster_state, served.service._store
    overviews = Overviews(store, Archive(served.home / "snapshots"), pictures, lambda _: None, StartPhases())
    shown = served.run(overviews.one(Person(name="ada"), 1))
    assert shown.experiment.number == 1
    assert any("snapshot cannot be read" in warning for warning in shown.warnings)


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"PK")])
def test_a_snapshot_that_is_gone_hides_no_other_row_of_a_history(served, client, damage):
    ids = []
    for number, definition in enumerate((DEFINITION, DEFINITION + "b = 2\n", DEFINITION + "c = 3\n", DEFINITION), 1):
        id, data = archive(definition)
        client.upload_snapshot(id, data)
        ids.append(id)
        python = f"/usr/bin/python{number}"
        client.submit(Submission(snapshot=id, name="digits", python=python, cwd="/", again=True))
    damage(served.home / "snapshots" / f"{ids[1]}.zip")
    told = {each.number: [one.text for one in each.differences] for each in client.history("digits")}
    assert sorted(told) == [1, 2, 3, 4]
    for number in (2, 3):
        assert [text.partition(" (")[0] for text in told[number]] == ["the snapshot of #2 cannot be read"]
    assert told[4]
    assert not any("cannot be read" in text for text in told[4])


def test_a_view_tells_what_has_changed_since_another_experiment(client: Client):
    first, second = (submit(client, epochs=epochs).experiment.number for epochs in (1, 2))
    path = f"/experiments/{second}/diff"
    status, found = answer(client, second, "GET", path, {"before": first})
    assert (status, [each["text"] for each in found["differences"]]) == (200, ["epochs 1 -> 2"])
    status, found = answer(client, second, "GET", path, {"other": first})
    assert (status, [each["text"] for each in found["differences"]]) == (200, ["epochs 2 -> 1"])
    assert answer(client, second, "GET", path, {})[0] == 400


@pytest.mark.parametrize(
    "query",
    [
        *(f"experiments?{name}={'a' * 1001}" for name in ("state", "search", "owner", "group", "notebook")),
        f"experiments?tag={'t,' * 10_000}",
        f"experiments?tag={','.join(f't{number}' for number in range(33))}",
        f"history?search={'_' * 60_000}",
        f"usage?by={'m' * 1001}",
    ],
)
def test_what_is_looked_for_is_short(served, query):
    """30,000 tags took 13 s of the processor, and the database was said not to be available."""
    answer = httpx.get(f"{served.url}/api/{query}", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 400
    assert "the limit is 1000" in answer.json()["message"] or "at most 32" in answer.json()["message"]


def test_curves_of_a_trial_that_take_long_hold_up_no_others(served, token, monkeypatch):
    store, may_end, begun = served.service._store, threading.Event(), threading.Event()
    real = store.reported_values

    def slow(number: int, trial: int, after: int) -> ReportedValues:
        if number == 1:
            begun.set()
            may_end.wait(60)
        return real(number, trial, after)

    monkeypatch.setattr(store, "reported_values", slow)
    client = served.client()
    submit(client)
    with ThreadPoolExecutor(1) as another:
        waiting = another.submit(served.client().curves, 1)
        assert begun.wait(60)
        assert client.curves(2).curves == ()
        may_end.set()
        waiting.result(60)
