"""Test mail about ended experiments, with a real SMTP server."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from traitlets import TraitError

from kernel_backend.api.cluster_page import PAGES
from kernel_backend.app import Daylight
from kernel_backend.client import Client
from kernel_backend.errors import Conflict, InvalidRequest
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.webhooks.rules import DAY_S, HostRules
from kernel_backend.retry import RetryPolicy
from kernel_backend.service.outbox import sender
from kernel_backend.service.outbox.config import OutboxConfig
from kernel_backend.text.webhooks import added_lines, webhook_row
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine, ended, submit
from tests.support.mail import MailServer
from tests.support.receivers import Receiver
from tests.support.world import until

PUBLIC = "https://hub.example.org/services/daylight"


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
    config = OutboxConfig(HostRules(hosts=("example.org",), mail=True), url, "daylight@example.org", PUBLIC)
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
    assert mail.get_content().splitlines()[-2:] == [f"{PUBLIC}/experiments/1", "daylight show 1"]
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


@pytest.fixture
def shared(server: MailServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Provide a service under a hub whose admin has listed no hosts, and has told it its address."""
    monkeypatch.setattr(sender, "LOOK_S", 0.02)
    rules = HostRules(inside=False, mail=True, links=True)
    config = OutboxConfig(rules, f"smtp://127.0.0.1:{server.port}", "daylight@example.org", PUBLIC)
    served = Served(tmp_path, StillEngine(), identity=FakeHub(), outbox=config, pages=PAGES)
    yield served
    served.stop()


def link_in(served: Served, server: MailServer) -> str:
    """Return the link in the newest mail, as one to this machine."""
    (path,) = re.findall(rf"^{PUBLIC}(/confirm/\S+)\s*$", server.mails[-1].get_content(), re.MULTILINE)
    return f"{served.url}{path}"


def test_an_address_gets_mail_once_its_owner_has_confirmed_it(shared: Served, server: MailServer) -> None:
    client = shared.client("dave")
    added = client.add_webhook("mailto:someone@example.net")
    assert "has opened the link" in added_lines(added, "daylight webhook")[0]
    (mail,) = server.mails
    assert (mail["To"], mail["Subject"]) == ("someone@example.net", "Daylight: confirm your address")
    assert "dave" not in mail.get_content(), "no text of a user's is mailed to strangers"
    submit(client, "one")
    ended(shared, client, AttemptId(1, 1, 1))
    with pytest.raises(Conflict, match="it waits for confirmation"):
        client.test_webhook(added.id)
    link = link_in(shared, server)
    for _ in range(2):  # programs that look for harmful mail open links
        page = httpx.get(link)
        assert "dave wants mail about their trainings (completed, failed, stopped)" in page.text
        assert "someone@example.net" in page.text
    (style,) = re.findall(r'rel="stylesheet" href="(.+?)"', page.text)
    assert ".dl-ask" in httpx.get(urljoin(link, style)).text, "it looks as the service's other pages"
    for wrong in (link[:-1] + ("A" if link[-1] != "A" else "B"), link.replace("/1-", "/2-")):
        assert (httpx.get(wrong).status_code, httpx.post(wrong).status_code) == (404, 404)
    assert webhook_row(client.webhooks()[0])[-1].startswith("waits for confirmation")
    assert "gets mail about their trainings from now on" in httpx.post(link).text
    assert (httpx.get(link).status_code, httpx.post(link).status_code) == (404, 404), "it is used up"
    assert client.webhooks()[0].unconfirmed == ""
    assert len(server.mails) == 1, "nothing that ended before is told"
    submit(client, "two")
    ended(shared, client, AttemptId(2, 1, 1))
    until(lambda: len(server.mails) == 2, "the second is told")
    assert server.mails[1]["Subject"] == "Daylight: #2 two completed"


def test_a_link_ends_after_a_day_and_with_its_webhook(
    shared: Served, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = shared.client("dave")
    client.add_webhook("mailto:someone@example.net")
    link = link_in(shared, server)
    (stored,) = shared.service._store.webhooks()
    shared.service._store.change_webhook(stored, at=stored.at - DAY_S)
    assert httpx.post(link).status_code == 404
    assert "remove it, and add it again" in client.webhooks()[0].unconfirmed
    client.remove_webhook(1)
    client.add_webhook("mailto:someone@example.net")
    assert httpx.post(link).status_code == 404, "the id is the same, and the link another"
    assert httpx.post(link_in(shared, server)).status_code == 200


def test_a_user_has_few_links_mailed_and_an_address_gets_fewer(shared: Served, server: MailServer) -> None:
    client = shared.client("dave")

    def ask(address: str, client: Client = client) -> None:
        client.remove_webhook(client.add_webhook(f"mailto:{address}").id)

    for address in ("someone@example.net", "Someone+1@example.net", "someone+2@Example.net"):
        ask(address)
    for other in (client, shared.client("danielle")):
        with pytest.raises(Conflict, match=r"3 to one address: try again in 24 h"):
            ask("someone@example.net", other)
    for address in ("a@example.net", "b@example.net"):
        ask(address)
    with pytest.raises(Conflict, match=r"c@example\.net is not added, .*5 mails with links"):
        ask("c@example.net")
    assert client.webhooks() == []
    assert len(server.mails) == 5
    server.refusing = "550 unknown"
    with pytest.raises(Conflict, match="the mail server refused the address"):
        ask("nobody@example.net", shared.client("danielle"))
    assert shared.service._store.webhooks() == []


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
    with pytest.raises(TraitError, match="public_url: must begin with https://"):
        Daylight(public_url="hub.example.org")
    found = Daylight(smtp_url="smtp://example.org", mail_from="a@example.org", webhook_hosts=["*.example.org"])
    assert found.outbox(inside=False).rules == HostRules(hosts=("*.example.org",), inside=False, mail=True)


def test_the_service_knows_its_address_from_the_hub_or_its_admin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Daylight().outbox(inside=False).rules.links
    monkeypatch.setenv("JUPYTERHUB_PUBLIC_URL", f"{PUBLIC}/")
    assert Daylight().outbox(inside=False).public_url == PUBLIC
    other = Daylight(public_url="http://other.example.org/").outbox(inside=False)
    assert (other.public_url, other.rules.links) == ("http://other.example.org", True)
