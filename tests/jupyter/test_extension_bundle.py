"""Test the bundle of an experiment in a notebook's output, made by the Jupyter server from the service's answers."""

from __future__ import annotations

import base64
import json

import pytest

from jupyter_ext.views.saved_state import MIME_TYPE
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from kernel_backend.model.versions import read
from kernel_backend.model.views.overview import Overview
from tests.api.served import report, started, submit, token_of
from tests.api.test_searching import begun, search, trained

SAID = ["captured: 2 cells", "<script>alert(1)</script>"]


def test_an_experiment_is_bundled_as_it_is_now(served, client, hosted):
    submit(client)
    token = token_of(served, AttemptId(1, 1, 1))
    client.deliver("1.1-1", token, Delivery(records=(started(), report(2), report(3, loss=float("nan")))))
    answer = hosted.post("/bundle/1", json={"captured": SAID})
    assert answer.headers["Content-Type"] == "application/json"
    found = answer.raise_for_status().json()
    assert set(found) == {"text/plain", "text/html", "image/png", MIME_TYPE}
    assert base64.b64decode(found["image/png"]).startswith(b"\x89PNG")
    assert SAID[1] in found["text/plain"]
    assert "&lt;script&gt;" in found["text/html"]
    assert "<script>" not in found["text/html"]
    saved = found[MIME_TYPE]
    assert saved["captured"] == SAID
    assert read(Overview, saved["overview"]).to_json() == client.experiment(1).to_json()
    assert [curve["metric"] for curve in saved["curves"]["curves"]] == ["loss"]
    json.loads(answer.text, parse_constant=pytest.fail)  # NaN and infinity are no JSON


def test_a_search_is_bundled_with_how_it_stands(served, client, hosted):
    number = search(client, parallel=1)
    begun(client, number, 1)
    trained(served, client, number, 1, 0.5)
    found = hosted.post(f"/bundle/{number}", json={"captured": []}).raise_for_status().json()[MIME_TYPE]["search"]
    assert [row["best"] for row in found["standing"]["trials"]][:1] == [0.5]
    assert [line["value"] for line in found["curves"]["lines"]] == [[0.5]]


def test_one_that_has_not_been_heard_of_yet_has_no_curves(served, client, hosted):
    submit(client)
    found = hosted.post("/bundle/1", json={"captured": []}).raise_for_status().json()
    assert set(found) == {"text/plain", "text/html", MIME_TYPE}
    assert found[MIME_TYPE]["curves"] is None
    assert "#1 digits" in found["text/plain"]


def test_curves_that_cannot_be_had_just_now_are_an_error_and_not_a_card_without_them(
    served, client, hosted, monkeypatch
):
    submit(client)
    token = token_of(served, AttemptId(1, 1, 1))
    client.deliver("1.1-1", token, Delivery(records=(started(), report(2))))

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(served.service, "curves", broken)
    answer = hosted.post("/bundle/1", json={"captured": []})
    assert (answer.status_code, answer.json()["error"]) == (500, "DaylightError")


def test_a_mistake_of_ours_is_500_without_its_insides(served, client, hosted, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret insides")

    submit(client)
    monkeypatch.setattr("jupyter_ext.server.handlers.bundle", broken)
    answer = hosted.post("/bundle/1", json={"captured": []})
    assert (answer.status_code, answer.json()["error"]) == (500, "InternalServerError")
    assert "log has the details" in answer.json()["message"]
    assert "secret" not in answer.text


def test_one_that_does_not_exist_is_404_in_the_services_words(served, client, hosted):
    answer = hosted.post("/bundle/7", json={"captured": []})
    assert answer.status_code == 404
    assert answer.json() == hosted.get("/api/experiments/7").json()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b"null", b"[]", b"{}", b'{"captured": "x"}', b'{"captured": [1]}', b"[" * 100_000],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_is_none_is_400(hosted, served, body):
    answer = hosted.post("/bundle/1", content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert "captured" in answer.json()["message"]


def test_a_body_beyond_the_limit_is_413(hosted, served):
    answer = hosted.post("/bundle/1", json={"captured": ["x" * 2**20]})
    assert (answer.status_code, answer.json()["error"]) == (413, "TooLarge")
