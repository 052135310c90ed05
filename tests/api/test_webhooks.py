"""Test webhooks of a real service against a real receiver that fails, is slow, or disappears."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import Conflict, Forbidden, InvalidRequest, NotFound
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from kernel_backend.model.trial import Failure
from kernel_backend.model.webhooks.rules import DAY_S, TRIES, HostRules
from kernel_backend.retry import RetryPolicy
from kernel_backend.service.outbox import http, limits, sender
from kernel_backend.service.outbox.config import OutboxConfig
from tests.api.people import FakeHub
from tests.api.served import TOKEN, Served, StillEngine, report, started, submit, token_of
from tests.support.receivers import Message, RawReceiver, Receiver
from tests.support.world import until

EVERYTHING = ("submitted", "completed", "failed", "stopped")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "LOOK_S", 0.02)
    monkeypatch.setattr(sender, "BACKOFF", RetryPolicy((0.02, 0.05)))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


def end(served: Served, client: Client, number: int, failure: Failure | None = None) -> None:
    """Complete an experiment after one validation."""
    key = AttemptId(number, 1, 1)
    client.deliver(key, token_of(served, key), Delivery(records=(started(), report(2, loss=0.25))))
    served.engine.end(key, failure)
    until(lambda: client.experiment(number).ended, f"#{number} has ended")


def is_signed(message: Message, secret: str) -> bool:
    """Return whether the signature is valid, checked without Daylight's code like a receiver would."""
    given = message.headers
    signed = f"{given['Webhook-Id']}.{given['Webhook-Timestamp']}.".encode() + message.body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return given["Webhook-Signature"] == f"v1,{digest}"


def test_a_receiver_is_told_of_the_end_of_an_experiment_with_its_best_result_or_its_error(
    served: Served, client: Client, receiver: Receiver
) -> None:
    added = client.add_webhook(receiver.url)
    submit(client, "digits")
    end(served, client, 1)
    until(lambda: receiver.messages, "a message arrives")
    (message,) = receiver.messages
    assert is_signed(message, added.secret)
    assert abs(int(message.headers["Webhook-Timestamp"]) - time.time()) < 600
    told = message.json
    assert (told["version"], told["type"]) == (1, "experiment.completed")
    assert told["id"] == message.headers["Webhook-Id"]
    assert told["text"] == "#1 digits completed: loss 0.25 best, epoch 1"
    assert told["url"] is None, "the service does not know its address in browsers"
    data = told["data"]
    assert (data["number"], data["name"], data["state"], data["trials"]) == (1, "digits", "completed", {"completed": 1})
    assert data["best"]["value"] == client.experiment(1).trials[0].best.value == 0.25
    submit(client, "broken", max_restarts=0)
    end(served, client, 2, Failure(rank=0, type="ValueError", message="no such width\nat all"))
    until(lambda: len(receiver.messages) == 2, "the failure is told")
    told = receiver.messages[1].json
    assert (told["type"], told["data"]["error"]) == ("experiment.failed", "ValueError: no such width\nat all")
    assert told["text"] == "#2 broken failed: ValueError: no such width"
    (listed,) = client.webhooks()
    assert (listed.secret, listed.problem, listed.waiting) == ("", "", 0)
    assert listed.delivered_at


def test_what_a_receiver_refuses_comes_again_in_order_under_the_same_id(
    served: Served, client: Client, receiver: Receiver
) -> None:
    receiver.answers[:] = [500, 503, 302]
    client.add_webhook(receiver.url, EVERYTHING)
    for name in ("one", "two"):
        submit(client, name)
    end(served, client, 1)
    until(lambda: len(receiver.taken) == 3, "all arrive")
    assert receiver.taken == [
        ("experiment.submitted", 1),
        ("experiment.submitted", 2),
        ("experiment.completed", 1),
    ]
    first, *_ = ids = [each.json["id"] for each in receiver.messages]
    assert ids[:4] == [first] * 4  # three refusals, the last one a redirect, which is not followed
    assert len(set(ids)) == 3
    until(lambda: client.webhooks()[0].problem == "", "it works again")


def test_nothing_is_lost_while_receiver_or_service_are_down(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.5)
    served = Served(tmp_path, StillEngine())
    client = served.client()
    client.add_webhook(receiver.url, EVERYTHING)
    receiver.stop()
    submit(client, "one")
    until(lambda: "no connection" in client.webhooks()[0].problem, "the receiver is missed")
    end(served, client, 1)
    served.stop()  # two messages wait
    again = Receiver(receiver.port)
    again.hold()
    served = Served(tmp_path, served.engine, served.port)
    client = served.client()
    assert again.held.wait(20)  # the message is there, and its answer is not: the service ends meanwhile
    until(lambda: "no answer within" in client.webhooks()[0].problem, "it is too slow")
    assert served.run(served.service.busy())
    served.stop()
    again.let_go()
    served = Served(tmp_path, served.engine, served.port)
    client = served.client()
    until(lambda: client.webhooks()[0].waiting == 0, "everything was delivered")
    told = list(dict.fromkeys(each.what for each in again.messages))
    assert told == [("experiment.submitted", 1), ("experiment.completed", 1)]
    assert len({each.json["id"] for each in again.messages}) == 2  # repeats have the same id
    assert len(again.messages) > 2
    again.stop()
    served.stop()


def test_a_webhook_that_has_failed_for_a_day_is_switched_off_until_a_test_succeeds(
    served: Served, client: Client, receiver: Receiver
) -> None:
    hook = client.add_webhook(receiver.url, ["submitted"])
    store = served.service._store
    store.change_webhook(store.webhook(hook.id), failing_since=time.time() - DAY_S)
    receiver.answers[:] = [500] * 6
    submit(client, "one")
    submit(client, "two")
    until(lambda: client.webhooks()[0].off, "it is switched off")
    off = client.webhooks()[0]
    assert off.off == "it has failed for a day: the receiver answered 500 Internal Server Error"
    assert (off.waiting, off.dropped) == (0, 2)
    while receiver.answers:
        assert "answered 500" in client.test_webhook(hook.id).problem
    tried = client.test_webhook(hook.id)
    assert (tried.problem, tried.webhook.off) == ("", "")
    assert (receiver.messages[-1].json["type"], receiver.messages[-1].json["data"]) == ("test", None)
    submit(client, "three")
    until(lambda: receiver.taken[-1:] == [("experiment.submitted", 3)], "it is told again")
    receiver.answers[:] = [410]
    submit(client, "four")
    until(lambda: client.webhooks()[0].off.startswith("the receiver said that it is gone"), "it is off at once")


OK = b"HTTP/1.1 200 OK\r\n"
WRONG = {
    "headers beyond 64 KiB": [OK, b"X: " + b"a" * 70_000 + b"\r\n\r\n"],
    "headers without an end": [OK, *[b"X: " + b"a" * 1000 + b"\r\n"] * 100],
    "no HTTP": [bytes(range(256)) * 16],
    "nothing": [b""],
    "a reset": [],
    "a status that is no number": [b"HTTP/1.1 abc OK\r\n\r\n"],
    "an unknown status": [b"HTTP/1.1 999 So\r\nContent-Length: 0\r\n\r\n"],
    "a header without a colon": [OK, b"here\r\n\r\n"],
    "a length that is no number": [OK, b"Content-Length: many\r\n\r\n"],
    "a length below zero": [OK, b"Content-Length: -1\r\n\r\n"],
    "two lengths": [OK, b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"],
    "a length beyond all": [OK, b"Content-Length: 99999999999999\r\n\r\n"],
    "half a body": [OK, b"Content-Length: 10\r\n\r\nabc"],
    "a body without an end": [OK, b"\r\n", *[bytes(2**16)] * 100],
    "chunks without an end": [
        OK,
        b"Transfer-Encoding: chunked\r\n\r\n",
        *[b"10000\r\n" + bytes(2**16) + b"\r\n"] * 100,
    ],
    "a chunk that is none": [OK, b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"],
    "a redirect that leads nowhere": [b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n"],
    "no TLS": [b""],
}


def test_whatever_a_receiver_does_wrong_is_a_failed_delivery(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "MOST_TESTS", len(WRONG))
    monkeypatch.setattr(http, "TIMEOUT_S", 2.0)
    raw = RawReceiver(list(WRONG.values()))
    store, hooks = served.service._store, {}
    for index, wrong in enumerate(WRONG):
        scheme = "https" if wrong == "no TLS" else "http"
        hook = client.add_webhook(f"{scheme}://127.0.0.1:{raw.port}/{index}", ["submitted"])
        store.change_webhook(store.webhook(hook.id), failing_since=time.time() - DAY_S)
        hooks[hook.id] = wrong
    submit(client, "one")
    until(lambda: all(each.off for each in client.webhooks()), "all are switched off")
    assert {hooks[each.id]: each.problem for each in client.webhooks() if not each.problem} == {}
    tries = {wrong: raw.asked[f"/{index}"] for index, wrong in enumerate(WRONG)}
    assert tries == {wrong: 0 if wrong == "no TLS" else TRIES for wrong in WRONG}
    assert [hooks[id] for id in hooks if not client.test_webhook(id).problem] == []
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
    raw.stop()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Callable[[str], Client]]:
    rules = HostRules(hosts=("*.example.org", "127.0.0.1", "localhost*"), inside=False)
    config = OutboxConfig(rules, public_url="https://hub.example.org/services/daylight")
    served = Served(tmp_path, StillEngine(), identity=FakeHub(), outbox=config)
    clients: dict[str, Client] = {}
    yield lambda name: clients.setdefault(name, served.client(name, patience=5))
    for each in clients.values():
        each.close()
    served.stop()


def test_users_have_their_own_webhooks_and_admins_those_of_all(
    hub: Callable[[str], Client], receiver: Receiver
) -> None:
    dave, eve, ada = hub("dave"), hub("eve"), hub("ada")
    own = dave.add_webhook(receiver.url, ["submitted"])
    with pytest.raises(Forbidden, match="only admins"):
        dave.add_webhook(receiver.url, everyone=True)
    with pytest.raises(Forbidden, match="listed for admins"):
        dave.webhooks(everyone=True)
    with pytest.raises(Forbidden, match="custom:daylight:submit"):
        hub("guest").add_webhook(receiver.url)
    for forbidden in (eve.remove_webhook, eve.test_webhook):
        with pytest.raises(NotFound, match="there is no webhook 1"):
            forbidden(own.id)
    assert eve.webhooks() == []
    submit(eve, "of eve")
    submit(dave, "of dave")
    until(lambda: receiver.taken, "dave is told")
    assert [each.json["data"]["owner"] for each in receiver.messages] == ["dave"]
    assert receiver.messages[0].json["url"] == "https://hub.example.org/services/daylight/experiments/2"
    shared = ada.add_webhook(receiver.url, ["submitted"], everyone=True)
    submit(eve, "again")
    until(lambda: len(receiver.taken) == 2, "the admin is told of everyone's")
    assert [each.owner for each in ada.webhooks(everyone=True)] == ["dave", "ada"]
    ada.remove_webhook(own.id)
    assert [(each.act, each.detail) for each in ada.audit()] == [
        ("remove webhook", "of dave"),
        ("add webhook", "of everyone's experiments"),
    ]
    assert [each.id for each in ada.webhooks()] == [shared.id]
    for _ in range(20):
        dave.add_webhook(receiver.url)
    with pytest.raises(Conflict, match="dave has 20 webhooks"):
        dave.add_webhook(receiver.url)


def test_under_a_hub_no_name_leads_into_the_machine(hub: Callable[[str], Client], receiver: Receiver) -> None:
    dave = hub("dave")
    for refused in ("http://169.254.169.254/", "http://evil.net/", "http://[::1]:80/"):
        with pytest.raises(InvalidRequest, match="may send to"):
            dave.add_webhook(refused)
    named = dave.add_webhook(receiver.url.replace("127.0.0.1", "localhost"))
    assert "an address within this machine" in dave.test_webhook(named.id).problem
    assert receiver.messages == []


def test_the_command_line_shows_no_secret_twice(
    service: Served, receiver: Receiver, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def said(*line: str, code: int = 0) -> str:
        assert main(["webhook", *line]) == code
        captured = capsys.readouterr()
        return captured.out + captured.err

    assert said() == "there are no webhooks\n"
    url = f"{receiver.url}?key=verysecretword"
    added = said("add", url, "--events", "failed, completed")
    assert "webhook 1 is notified when an experiment is failed or completed" in added
    assert "secret whsec_" in added
    listed = said("list")
    assert "verysecretword" not in listed
    assert "whsec_" not in listed
    assert "?key=***" in listed
    assert "the test message was delivered" in said("test", url)
    receiver.answers[:] = [404]
    assert "answered 404 Not Found" in said("test", "1", code=1)
    assert "did you mean failed?" in said("add", url, "--events", "faild", code=2)
    (tmp_path / "key").write_text("whsec_" + base64.b64encode(bytes(32)).decode() + "\n")
    assert json.loads(said("add", url, "--secret", str(tmp_path / "key"), "--json"))["id"] == 2
    assert "several webhooks have" in said("remove", url, code=2)
    assert "is removed" in said("remove", "2")
    assert "takes one address or id" in said("test", code=2)
    assert TOKEN not in listed


def test_names_that_do_not_resolve_delay_nobody_elses_messages_and_answers(
    hub: Callable[[str], Client], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.5)
    real, asked, answered = socket.getaddrinfo, [], threading.Event()

    def getaddrinfo(host: str, *rest: Any, **named: Any) -> Any:
        if not host.endswith(".example.org"):
            return real(host, *rest, **named)
        asked.append(host)
        answered.wait()
        raise socket.gaierror(f"{host} is not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    dave, eve = hub("dave"), hub("eve")
    dave.add_webhook(receiver.url, ["submitted"])
    ids = [eve.add_webhook(f"https://n{number}.example.org/", ["submitted"]).id for number in range(20)]
    try:
        submit(eve, "of eve")
        until(lambda: any("is looked up once" in each.problem for each in eve.webhooks()), "eve has her share")
        assert "is looked up once" in eve.test_webhook(ids[-1]).problem
        submit(dave, "of dave")
        until(lambda: receiver.taken, "dave is told")
        assert len(asked) == 3
    finally:
        answered.set()


def test_slow_receivers_of_a_user_hold_two_places(hub: Callable[[str], Client], receiver: Receiver) -> None:
    dave, eve = hub("dave"), hub("eve")
    slow = Receiver()
    for _ in range(20):
        eve.add_webhook(slow.url, ["submitted"])
    dave.add_webhook(receiver.url, ["submitted"])
    slow.hold()
    submit(eve, "of eve")
    until(lambda: len(slow.messages) == 2, "eve's places are taken")
    submit(dave, "of dave")
    until(lambda: receiver.taken, "dave is told")
    assert len(slow.messages) == 2
    slow.stop()


def test_a_user_tests_one_webhook_at_a_time_and_a_few_a_minute(
    hub: Callable[[str], Client], receiver: Receiver
) -> None:
    dave, eve = hub("dave"), hub("eve")
    hook, other = dave.add_webhook(receiver.url).id, eve.add_webhook(receiver.url).id
    receiver.hold()
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(dave.test_webhook, hook)
        assert receiver.held.wait(20)
        with pytest.raises(Conflict, match="is running: wait for its result"):
            dave.test_webhook(hook)
        receiver.let_go()
        assert first.result(20).problem == ""
    for _ in range(4):
        assert dave.test_webhook(hook).problem == ""
    with pytest.raises(Conflict, match=r"5 tests of webhooks within 60 s are the limit: try again in \d+ s"):
        dave.test_webhook(hook)
    assert eve.test_webhook(other).problem == ""
