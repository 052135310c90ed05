"""Test that the Jupyter server finds the user's service, starts it if needed, and reports why it cannot."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from kernel_backend import discovery
from kernel_backend.discovery import Address
from tests.api.served import TOKEN, Served, StillEngine, submit
from tests.jupyter import standin
from tests.jupyter.hosted import Hosted
from tests.jupyter.standin import StandIn
from tests.support.world import World, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hasty(home: Path, tmp_path: Path) -> Iterator[Hosted]:
    """Provide a Jupyter server with short timeouts, but a long one for a service that answers."""
    hosted = Hosted(tmp_path / "jupyter", DaylightExtension={"start_limit": 1.0})
    yield hosted
    hosted.stop()


@pytest.fixture
def log(hosted: Hosted) -> Iterator[list[str]]:
    """Collect the messages that the Jupyter server logs at level info."""
    said: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    hosted.app.log.addHandler(handler)
    yield said
    hosted.app.log.removeHandler(handler)


def services(world: World) -> list[psutil.Process]:
    return [each for each in world.processes("-m kernel_backend") if "kernel_backend.launch" not in each.cmdline()]


def test_the_first_who_ask_start_the_service_and_all_of_them_one(world, hosted, log):
    with ThreadPoolExecutor(8) as browsers:
        answers = list(browsers.map(lambda _: hosted.get("/api/health"), range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["pid"] for answer in answers} == {discovery.find(world.home).pid}
    assert [process.pid for process in services(world)] == [discovery.find(world.home).pid]
    assert log.count("No Daylight service runs: starting one") == 1
    assert not [text for text in log if TOKEN in text]


def test_a_service_that_was_killed_is_back_at_the_next_request(world, hosted):
    first = hosted.get("/api/health").json()["pid"]
    with hosted.stream("?after=0") as browser:
        os.kill(first, signal.SIGKILL)
        second = hosted.get("/api/health")  # at once, while it may still look alive
        with pytest.raises(ConnectionClosed) as end:
            browser.recv(timeout=120)
    assert second.status_code == 200, second.text
    assert second.json()["pid"] != first
    assert end.value.rcvd.code == 1001
    with hosted.stream("?after=0"):
        assert len(services(world)) == 1


def test_a_stream_starts_the_service_too(world, hosted):
    with hosted.stream("?after=0"):
        assert discovery.find(world.home) is not None


def test_a_service_that_came_back_on_another_port_is_found(home, hosted):
    first = Served(home, StillEngine())
    standin.announce(home, first.port)
    (home / "token").write_text(TOKEN)
    submit(first.client())
    assert hosted.get("/api/experiments/1").status_code == 200
    first.stop()
    with socket.socket() as taken:  # else the second one may be given the very port of the first
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", first.port))
        second = Served(home, first.engine)
        discovery.announce(home, "127.0.0.1", second.port)
        try:
            assert second.port != first.port
            assert hosted.get("/api/experiments/1").status_code == 200
        finally:
            second.stop()


def test_what_a_dying_service_cut_off_is_asked_of_the_next_one(home, hosted):
    served = Served(home, StillEngine())
    (home / "token").write_text(TOKEN)
    submit(served.client())

    def die() -> bytes:
        (home / "token").write_text(TOKEN)
        discovery.announce(home, "127.0.0.1", served.port)
        return b""

    try:
        for ask in (lambda: hosted.get("/api/experiments/1"), lambda: hosted.post("/api/experiments/1/stop")):
            dying = StandIn(home, die)
            answer = ask()
            dying.close()
            assert (answer.status_code, len(dying.heard)) == (200, 1), answer.text
        dying = StandIn(home, die)
        with hosted.stream("?after=0") as browser:
            assert json.loads(browser.recv(timeout=120))["seq"] == 1
        dying.close()
    finally:
        served.stop()


def test_an_address_where_nobody_listens_is_503_and_says_what_to_do(home, hosted):
    with socket.socket() as silent:  # bound, so that nobody is given its port meanwhile
        silent.bind(("127.0.0.1", 0))
        standin.announce(home, silent.getsockname()[1])
        answer = hosted.get("/api/nodes")
        assert (answer.status_code, answer.json()["error"]) == (503, "ServiceUnreachable")
        assert "daylight serve" in answer.json()["message"]
        with pytest.raises(InvalidStatus) as refused, hosted.stream():
            pass
    assert refused.value.response.status_code == 503
    assert json.loads(refused.value.response.body)["error"] == "ServiceUnreachable"


def test_a_service_that_does_not_answer_is_504_within_the_limit(home, tmp_path):
    silent = StandIn(home, lambda: None)
    hosted = Hosted(tmp_path / "jupyter", DaylightExtension={"answer_limit": 3.0})
    try:
        answer = hosted.get("/api/nodes")
        assert (answer.status_code, answer.json()["error"]) == (504, "ServiceUnreachable")
        assert "within 3 s" in answer.json()["message"]
        assert str(os.getpid()) in answer.json()["message"]
        with pytest.raises(InvalidStatus) as refused, hosted.stream():
            pass
        assert refused.value.response.status_code == 504
        until(lambda: len(silent.heard) == 2, "both have been heard")
    finally:
        hosted.stop()
        silent.close()


def test_a_service_that_cannot_start_is_503_with_its_last_words(home, hasty):
    (home / "service.log").write_text("the disk is on fire\n")
    with discovery.lock(home) as ours:
        assert ours
        with ThreadPoolExecutor(2) as browsers:
            answers = list(browsers.map(hasty.get, ("/api/nodes", "/api/experiments/1")))
    for answer in answers:
        assert answer.status_code == 503
        body = answer.json()
        assert body["error"] == "ServiceUnreachable"
        assert "did not start within 1 s" in body["message"]
        assert "the disk is on fire" in body["message"]


def test_after_a_failed_start_it_is_tried_again(world, hosted, caplog, monkeypatch):
    def fail(limit: float) -> Address:
        raise discovery.CannotStart("not today")

    with monkeypatch.context() as broken:
        broken.setattr(discovery, "start", fail)
        assert hosted.get("/api/nodes").json()["message"] == "not today"
    until(lambda: hosted.get("/api/nodes").status_code == 200, "it is started")
    assert "Daylight: not today" in caplog.messages


def test_a_disk_that_does_not_answer_keeps_nobody_waiting_for_ever(home, hasty, monkeypatch):
    back, find = threading.Event(), discovery.find
    served = Served(home, StillEngine())

    def slowly() -> Address | None:
        assert back.wait(60)
        return find()

    monkeypatch.setattr(discovery, "find", slowly)
    with monkeypatch.context() as impatient:
        impatient.setattr("jupyter_ext.server.finder.GRACE_S", -0.5)
        answer = hasty.get("/api/nodes")
    assert (answer.status_code, answer.json()["error"]) == (503, "ServiceUnreachable")
    assert "within 0.5 s" in answer.json()["message"]
    standin.announce(home, served.port)
    (home / "token").write_text(TOKEN)
    back.set()
    assert hasty.get("/api/nodes").status_code == 200
    served.stop()


def test_a_service_that_stands_still_is_noticed_by_its_watchers(world, hosted, monkeypatch):
    monkeypatch.setattr("jupyter_ext.server.proxy.PING_S", 0.3)
    world.serve()
    with hosted.stream("?after=0") as browser:
        address = discovery.find(world.home)
        os.kill(address.pid, signal.SIGSTOP)
        try:
            assert list(browser) == []
        finally:
            os.kill(address.pid, signal.SIGCONT)
    assert (browser.close_code, browser.close_reason) == (1001, "Daylight's service has gone")


def test_many_views_of_a_service_that_cannot_start_do_not_start_a_process_each(hosted, monkeypatch):
    starts: list[float] = []

    def fail(limit: float) -> Address:
        starts.append(limit)
        raise discovery.CannotStart("not today")

    monkeypatch.setattr(discovery, "start", fail)
    monkeypatch.setattr("jupyter_ext.server.finder.REST_S", 3600.0)
    assert [hosted.get("/api/nodes").status_code for _ in range(5)] == [503] * 5
    assert starts == [discovery.START_LIMIT]


def test_a_folder_that_cannot_be_used_is_said_to_be_the_trouble(hosted, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path / "file" / "home"))
    answer = hosted.get("/api/nodes")
    assert (answer.status_code, answer.json()["error"]) == (503, "ServiceUnreachable")
    assert "DAYLIGHT_HOME" in answer.json()["message"]


def test_jupyter_goes_on_while_the_service_takes_its_time_to_start(home, hosted, monkeypatch):
    starting, started = threading.Event(), threading.Event()
    served = Served(home, StillEngine())

    def slowly(limit: float) -> Address:
        starting.set()
        assert started.wait(60)
        return Address(served.url, TOKEN)

    monkeypatch.setattr(discovery, "start", slowly)
    with ThreadPoolExecutor(1) as browser:
        waiting = browser.submit(hosted.get, "/api/nodes")
        assert starting.wait(20)
        jupyters = hosted.http.get(f"http://127.0.0.1:{hosted.port}/user/dave/api/status")
        assert jupyters.status_code == 200
        assert not waiting.done()
        started.set()
        assert waiting.result(20).status_code == 200
    served.stop()


def test_a_jupyter_server_of_its_own_loads_it_from_the_file_that_is_installed(world, tmp_path):
    config = tmp_path / "jupyter" / "config" / "jupyter_server_config.d"
    config.mkdir(parents=True)
    shutil.copy(ROOT / "jupyter-config" / "daylight.json", config)
    others = dict.fromkeys(("jupyterlab", "jupyter_lsp", "notebook", "notebook_shim"), False)  # they take their time
    (config / "others.json").write_text(json.dumps({"ServerApp": {"jpserver_extensions": others}}))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    jupyter = [sys.executable, "-m", "jupyter", "server"]
    listed = subprocess.run(
        [*jupyter, "extension", "list"], env=environment, capture_output=True, text=True, check=True, timeout=100
    )
    assert "jupyter_ext 0.1.0" in listed.stdout
    assert "OK" in next(line for line in listed.stdout.splitlines() if "jupyter_ext 0.1.0" in line)

    options = ["--port=0", "--no-browser", "--allow-root", "--IdentityProvider.token=t", "--ServerApp.base_url=/a+b/"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*jupyter, *options], env=environment, cwd=tmp_path, stdout=log, stderr=log)
    try:
        runtime = tmp_path / "jupyter" / "runtime"
        found = until(lambda: next(runtime.glob("jpserver-*.json"), None), "it starts", patience=60)
        facts = until(lambda: found.read_text().endswith("}") and json.loads(found.read_text()), "its file is whole")
        answer = httpx.get(f"{facts['url']}daylight/api/health?token=t", timeout=60, trust_env=False)
        assert (answer.status_code, answer.json()["pid"]) == (200, discovery.find(world.home).pid), answer.text
    finally:
        process.kill()
        process.wait()
