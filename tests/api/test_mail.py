"""Test mail about ended experiments, with a real SMTP server."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from traitlets import TraitError

from kernel_backend.app import Daylight
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.webhooks.rules import HostRules
from kernel_backend.retry import RetryPolicy
from kernel_backend.service.outbox import sender
from kernel_backend.service.outbox.config import OutboxConfig
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine, ended, submit
from tests.support.mail import MailServer
from tests.support.receivers import Receiver
from tests.support.world import until


@pytest.fixture
def server() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


def test_a_mail_tells_the_end_and_is_sent_again_until_the_server_takes_it(
    server: MailServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "LOOK_S", 0.02)
    monkeypatch.setattr(sender, "BACKOFF", RetryPolicy((0.02,)))
    url = f"smtp://robot:p%40ss@127.0.0.1:{server.port}"
    config = OutboxConfig(HostRules(hosts=("example.org",), mail=True), url, "daylight@example.org")
    served = Served(tmp_path, StillEngine(), outbox=config)
    client = served.client()
    with pytest.raises(InvalidRequest, match=r"evil\.net is no host"):
        client.add_webhook("mailto:dave@evil.net")
    client.add_webhook("mailto:dave@example.org")
    server.refusing = "450 later"
    submit(client, "digits\r\nBcc: eve@example.org")
    ended(served, client, AttemptId(1, 1, 1))
    until(lambda: client.webhooks()[0].problem == "the mail server refused the address", "it is refused")
    assert server.mails == []
    server.refusing = ""
    until(lambda: server.mails, "it is taken")
    (mail,) = server.mails
    assert (mail["To"], mail["From"]) == ("dave@example.org", "daylight@example.org")
    assert mail["Subject"] == "Daylight: #1 digits Bcc: eve@example.org completed"
    assert mail["Bcc"] is None
    assert "daylight show 1" in mail.get_content()
    assert base64.b64decode(server.logins[0]) == b"\0robot\0p@ss"
    assert {each.upper() for each in server.recipients} == {"TO:<DAVE@EXAMPLE.ORG>"}
    served.stop()


def test_a_mail_server_that_hangs_delays_mail_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "LOOK_S", 0.02)
    silent, receiver, people = socket.create_server(("127.0.0.1", 0)), Receiver(), FakeHub()
    url = f"smtp://127.0.0.1:{silent.getsockname()[1]}"
    rules = HostRules(hosts=("example.org", "127.0.0.1"), inside=False, mail=True)
    served = Served(tmp_path, StillEngine(), identity=people, outbox=OutboxConfig(rules, url, "daylight@example.org"))
    names = [f"user{number}" for number in range(8)]
    people.people |= {name: Person(name=name) for name in names}
    for name in names:
        with closing(served.client(name)) as client:
            for _ in range(2):
                client.add_webhook("mailto:dave@example.org", ["submitted"])
            submit(client, "one")
    waiting = [silent.accept()[0] for _ in range(16)]  # all places of mail
    with closing(served.client("dave")) as dave:
        dave.add_webhook(receiver.url, ["submitted"])
        submit(dave, "two")
        until(lambda: receiver.taken, "dave is told")
    for each in (*waiting, silent):
        each.close()
    served.stop()
    receiver.stop()


def test_without_a_server_there_is_no_mail(client: Client) -> None:
    with pytest.raises(InvalidRequest, match=r"an admin sets c\.Daylight\.smtp_url"):
        client.add_webhook("mailto:dave@example.org")


def test_settings_are_checked_without_showing_the_password() -> None:
    with pytest.raises(TraitError, match="smtp_url: must be smtp://host") as wrong:
        Daylight(smtp_url="robot:verysecret@example.org")
    assert "verysecret" not in str(wrong.value)
    with pytest.raises(TraitError, match="smtp_url needs a sender"):
        Daylight(smtp_url="smtp://example.org").outbox(inside=True)
    with pytest.raises(TraitError, match=r"webhook_hosts: 'https://example\.org' is no host"):
        Daylight(webhook_hosts=["https://example.org"])
    found = Daylight(smtp_url="smtp://example.org", mail_from="a@example.org", webhook_hosts=["*.example.org"])
    assert found.outbox(inside=False).rules == HostRules(hosts=("*.example.org",), inside=False, mail=True)
