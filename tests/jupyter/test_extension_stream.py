"""Test the stream through the Jupyter server: the service's frames, in order, no faster than the browser reads."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from tests.api.served import report, started, submit, token_of
from tests.jupyter.hosted import Hosted
from tests.jupyter.standin import Streamer
from tests.support.world import until

FRAMES, SIZE = 10_000, 8_000


@pytest.fixture
def streamer(home: Path) -> Iterator[Callable[..., Streamer]]:
    """Provide a function that runs a server which sends frames without end in place of the service."""
    made: list[Streamer] = []

    def put(**options: Any) -> Streamer:
        made.append(Streamer(home, **options))
        return made[-1]

    yield put
    for each in made:
        each.close()


@contextmanager
def slow_browser(hosted: Hosted) -> Iterator[ClientConnection]:
    """Provide a browser with a small buffer for unread data."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    small.connect(("127.0.0.1", hosted.port))
    with hosted.stream("?after=0", sock=small, max_queue=1, compression=None, ping_interval=None) as browser:
        yield browser


def steps_until(browser: ClientConnection, step: int) -> list[dict[str, Any]]:
    """Return the frames up to the report of a step."""
    seen: list[dict[str, Any]] = []
    while not (seen and seen[-1]["type"] == "report" and seen[-1]["data"]["step"] >= step):
        seen.append(json.loads(browser.recv(timeout=60)))
    return seen


def deliver(served, client, *numbers: int) -> None:
    records = (started(), *map(report, range(2, max(numbers) + 1)))
    token = token_of(served, AttemptId(1, 1, 1))
    client.deliver("1.1-1", token, Delivery(records=tuple(r for r in records if r.number in numbers)))


def test_what_is_said_is_what_the_service_says_and_goes_on_after_any_number(served, client, hosted):
    submit(client)
    deliver(served, client, 1, 2, 3)
    with hosted.stream("?after=0&experiment=1") as browser:
        first = steps_until(browser, 3)
        deliver(served, client, 4)
        first += steps_until(browser, 4)
    own = []
    for message in client.watch(after=0, experiment=1):
        own.append(message.to_json())
        if message.seq == first[-1]["seq"]:
            break
    assert first == own
    deliver(served, client, 5)
    with hosted.stream(f"?after={first[-1]['seq']}&experiment=1") as browser:
        assert [each["data"]["step"] for each in steps_until(browser, 5)] == [5]


def test_only_the_experiment_that_was_asked_for_is_told_of(served, client, hosted):
    submit(client)
    submit(client, name="other")
    with hosted.stream("?after=0&experiment=2") as browser:
        assert json.loads(browser.recv(timeout=120))["experiment"] == 2


@pytest.mark.parametrize(("query", "status"), [("?experiment=7", 404), ("?after=x", 400), ("?experiment=-1", 400)])
def test_what_the_service_refuses_is_refused_before_the_stream_begins(served, client, hosted, query, status):
    with pytest.raises(InvalidStatus) as refused, hosted.stream(query):
        pass
    answer = refused.value.response
    assert answer.status_code == status
    assert answer.headers["Content-Type"].startswith("application/json")
    body = json.loads(answer.body)
    assert body["error"] in ("NotFound", "InvalidRequest")
    assert body["message"]


def test_a_service_that_does_not_know_its_token_is_told_of_as_such(served, hosted, home):
    (home / "token").write_text("another")
    with pytest.raises(InvalidStatus) as refused, hosted.stream():
        pass
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body)["error"] == "Unauthenticated"


def test_a_plain_request_is_told_that_there_is_a_websocket(served, hosted):
    answer = hosted.get("/api/stream?after=0")
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert not served.use.streams


def test_a_browser_that_goes_leaves_no_stream_behind(served, client, hosted):
    submit(client)
    with hosted.stream("?after=0") as browser:
        browser.recv(timeout=120)
        assert len(served.use.streams) == 1
    until(lambda: not served.use.streams, "the service's stream is closed", patience=20)


def test_a_browser_that_vanishes_leaves_no_stream_behind(served, client, hosted):
    submit(client)
    with hosted.stream("?after=0") as browser:
        browser.recv(timeout=120)
        browser.socket.shutdown(socket.SHUT_RDWR)
        until(lambda: not served.use.streams, "the service's stream is closed", patience=20)


def test_what_a_browser_says_is_not_heard(served, client, hosted):
    submit(client)
    with hosted.stream("?after=0") as browser:
        browser.send("hello" * 1000)
        browser.send(b"hello")
        deliver(served, client, 1, 2)
        assert steps_until(browser, 2)


def test_a_browser_is_asked_now_and_then_whether_it_is_there(served, tmp_path, caplog):
    hosted = Hosted(tmp_path / "jupyter", ServerApp={"tornado_settings": {"ws_ping_interval": 100}})
    heard = logging.getLogger("tests.browser")
    try:
        with caplog.at_level(logging.DEBUG, heard.name), hosted.stream(logger=heard, ping_interval=None):
            until(lambda: any("< PING" in text for text in caplog.messages), "a ping comes", patience=20)
    finally:
        hosted.stop()


@pytest.mark.parametrize(("code", "reason"), [(1001, "the service ends"), (1011, "it made a mistake"), (1000, "")])
def test_the_services_last_words_reach_the_browser(streamer, hosted, code, reason):
    streamer(frames=3, code=code, reason=reason)
    with hosted.stream() as browser:
        assert [str(browser.recv(timeout=120)).split()[0] for _ in range(3)] == ["0", "1", "2"]
        with pytest.raises(ConnectionClosed) as end:
            browser.recv(timeout=120)
    assert end.value.rcvd is not None
    assert (end.value.rcvd.code, end.value.rcvd.reason) == (code, reason)


def test_a_service_that_vanishes_is_said_to_have_gone(served, client, hosted):
    submit(client)
    with hosted.stream("?after=0") as browser:
        browser.recv(timeout=120)
        assert served.cut() == 1
        for _ in browser:  # what was on its way; this kind of end is no error
            pass
    assert (browser.close_code, browser.close_reason) == (1001, "Daylight's service has gone")


def test_what_a_slow_browser_has_not_read_waits_at_the_service(streamer, hosted):
    service = streamer(frames=FRAMES, size=SIZE)
    with slow_browser(hosted) as browser:
        stands_still(service)
        # What the two sockets hold, and nothing like the whole.
        assert service.taken < FRAMES / 2
        numbers = [int(str(browser.recv(timeout=60)).split()[0]) for _ in range(FRAMES)]
    assert numbers == list(range(FRAMES))


def test_a_slow_browser_that_goes_away_is_forgotten(streamer, hosted):
    service = streamer(frames=FRAMES, size=SIZE)
    with slow_browser(hosted) as browser:
        stands_still(service)
        browser.socket.shutdown(socket.SHUT_RDWR)
    until(lambda: not passing(hosted), "nothing is passed on any more", patience=20)
    assert service.taken < FRAMES


@pytest.mark.distributed
def test_an_experiment_that_trains_is_followed_through_the_server(world, hosted):
    world.serve()
    world.submit(epochs=3, pause=0.02, slots=1)
    with hosted.stream("?after=0&experiment=1") as browser:
        before = steps_until(browser, 8)
    with hosted.stream(f"?after={before[-1]['seq']}&experiment=1") as browser:
        seen = before + steps_until(browser, 24)
    steps = [each["data"]["step"] for each in seen if each["type"] == "report"]
    assert steps == [each.step for each in world.reports(1)][: len(steps)]
    assert [each["seq"] for each in seen] == sorted({each["seq"] for each in seen})


def stands_still(service: Streamer) -> None:
    """Wait until no more frames are read from the service; on a slow machine one look is not enough."""
    until(lambda: service.taken, "the stream has begun")
    looks = [-1]
    while len(looks) < 15 or len(set(looks[-10:])) > 1:
        time.sleep(0.1)
        looks.append(service.taken)


def passing(hosted: Hosted) -> list[str]:
    """Return the streams that the server is forwarding."""
    import asyncio

    async def names() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "Daylight's stream"]

    found: list[str] = hosted.run(names())
    return found
