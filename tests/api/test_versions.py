"""Test that clients, services and launchers of different versions cooperate, or report the incompatibility."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from kernel_backend import __version__
from kernel_backend.api.base import ApiHandler
from kernel_backend.client import Client
from kernel_backend.errors import OtherVersion
from kernel_backend.model.experiment import Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec, read_job
from kernel_backend.model.record import Record
from kernel_backend.model.reports import AttemptResult, Delivery, Instruction
from kernel_backend.model.stream import Message
from kernel_backend.model.versions import VERSION, read, says_nothing
from kernel_backend.model.views.overview import Overview
from tests.api.served import TOKEN, Served, archive, report, started, submit, token_of

KEY = AttemptId(1, 1, 1)
# What 0.1.0 has sent and written, recorded from a conversation: no version may lose the ability to read it.
RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "wire-0.1.0.json").read_text())
KINDS: dict[str, type[Record]] = {
    "overview": Overview,
    "submission": Submission,
    "delivery": Delivery,
    "instruction": Instruction,
    "job": LaunchSpec,
    "outcome": AttemptResult,
    "message": Message,
}


def later(value: Any) -> Any:
    """Return JSON as a later version would write it: with an additional field in each object."""
    if isinstance(value, Mapping):
        free = not value or value.keys() <= {"loss", "lr", "width"}  # whose names are the user's own
        more = {} if free else {"a_later_field": {"text": "what for", "list": [1]}}
        return {**{key: later(item) for key, item in value.items()}, **more}
    return [later(item) for item in value] if isinstance(value, list) else value


def known(name: str) -> dict[str, Any]:
    kind = KINDS[name]
    return {key: value for key, value in RECORDED[name].items() if key in kind.model_fields}


@pytest.mark.parametrize("name", KINDS)
def test_what_an_earlier_version_wrote_is_read(name: str) -> None:
    assert KINDS[name].model_validate(known(name))


@pytest.mark.parametrize("name", ["overview", "delivery", "instruction", "outcome"])
def test_fields_of_a_later_version_are_left_out(name: str) -> None:
    assert read(KINDS[name], later(known(name))) == KINDS[name].model_validate(known(name))
    assert read(KINDS[name], json.dumps(later(known(name))).encode()) == KINDS[name].model_validate(known(name))


def test_a_job_of_a_later_service_is_taken_unless_it_asks_for_something_unknown() -> None:
    job = known("job")
    silent = {**job, "later": None, "config": {**job["config"], "later": False, "more": []}}
    assert read_job(json.dumps(silent).encode()) == LaunchSpec.model_validate(job)
    asks = {**job, "config": {**job["config"], "quantize": 4}}
    with pytest.raises(OtherVersion, match=r"does not know \(config\.quantize: .*, not 4\): install the service's"):
        read_job(json.dumps(asks).encode())


@pytest.mark.parametrize(("value", "silent"), [(None, True), (False, True), ([], True), (0, False), ("a", False)])
def test_only_what_says_nothing_may_be_left_out_of_a_request(value: Any, silent: bool) -> None:
    assert says_nothing(value) is silent


def post(served: Served, path: str, body: Any, version: str = "9.9.9", token: str = TOKEN) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", VERSION: version}
    return httpx.post(f"{served.url}{path}", json=body, headers=headers, trust_env=False)


def test_a_later_client_is_understood_or_told_which_versions_there_are(served: Served, client: Client) -> None:
    id, data = archive()
    client.upload_snapshot(id, data)
    body = {**known("submission"), "snapshot": id}
    silent = post(served, "/api/experiments", {**body, "later": None})
    assert (silent.status_code, silent.headers[VERSION]) == (201, __version__)
    told = post(served, "/api/experiments", {**body, "config": {**body["config"], "quantize": 4}})
    assert (told.status_code, told.json()["error"]) == (400, "OtherVersion")
    assert "config.quantize" in told.json()["message"]
    both = f"this service is Daylight {__version__} and does not know what Daylight 9.9.9 requests"
    assert both in told.json()["message"]
    same = post(served, "/api/experiments", {**body, "config": {**body["config"], "quantize": 4}}, __version__)
    assert (same.status_code, same.json()["error"]) == (400, "InvalidRequest")


def test_a_launcher_of_a_later_version_delivers_all_that_is_known_here(served: Served, client: Client) -> None:
    submit(client)
    records = [started().to_json(), report(2).to_json()]
    answer = post(served, f"/api/attempts/{KEY}/records", {"records": later(records)}, token=token_of(served, KEY))
    assert answer.json()["accepted"] == 2
    assert [each.step for each in client.reports(1)] == [2]


def test_a_client_and_a_launcher_of_this_version_go_on_under_a_later_service(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = ApiHandler.reply

    def says_more(self: ApiHandler, answer: Any) -> None:
        reply(self, later(answer.to_json() if isinstance(answer, Record) else _plain(answer)))

    monkeypatch.setattr(ApiHandler, "reply", says_more)
    submit(client)
    instruction = client.deliver(KEY, token_of(served, KEY), Delivery(records=(started(), report(2))))
    assert (instruction.accepted, instruction.instruct) == (2, "continue")
    assert [each.step for each in client.reports(1)] == [2]
    assert client.experiment(1).trials[0].state == "running"
    assert client.stop(1).experiment.state == "stopping"
    assert client.nodes()[0].slots == 2
    assert client.me().person.name
    assert client.logs(1).text


def test_an_answer_that_cannot_be_read_is_a_sentence_with_both_versions(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(client)
    monkeypatch.setattr("kernel_backend.api.base.__version__", "0.0.1")
    monkeypatch.setattr(ApiHandler, "reply", lambda self, answer: self.finish({"experiment": {}}))
    with pytest.raises(OtherVersion) as raised:
        client.experiment(1)
    assert f"the service is Daylight 0.0.1, this is Daylight {__version__}" in raised.value.message
    assert "end the service" in raised.value.message


def test_an_earlier_service_that_refuses_a_field_is_named(served: Served, client: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr("kernel_backend.api.base.VERSION", "X-None")  # from before there was this header
    body = {**known("submission"), "quantize": 4}
    with pytest.raises(OtherVersion, match=r"the service is an older Daylight, this is .*\(quantize: Extra inputs"):
        client._service.call("POST", "/api/experiments", json=body)


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
