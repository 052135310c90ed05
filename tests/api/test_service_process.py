"""Test the service as a process: one per home, found through its files, ended when idle, with private secrets."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import psutil
import pytest

from kernel_backend import discovery
from kernel_backend.client import Client
from kernel_backend.discovery import CannotStart
from kernel_backend.engines.folders import MARK
from kernel_backend.errors import ServiceUnreachable
from tests.support.forked_service import ForkedService
from tests.support.world import PATIENCE_S, until


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    yield home
    stop(home)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Provide a home whose service runs, for tests that only read."""
    home = tmp_path_factory.mktemp("running")
    discovery.start(home)
    yield home
    stop(home)


def stop(home: Path) -> None:
    """End the service of this home, and wait until it is gone."""
    address = discovery.find(home)
    if address is None:
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(address.pid)
        process.terminate()
        process.wait(PATIENCE_S)


def run(home: Path, *arguments: str) -> tuple[int, str]:
    return ForkedService(home, *arguments).ended()


def serving(home: Path) -> list[int]:
    """Return the services of this home among the descendants of this process."""
    found = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess):  # it has ended since: it serves no more
            if "kernel_backend" in process.cmdline() and process.cwd() == str(home):
                found.append(process.pid)
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_use_starts_a_service_that_outlives_its_starter(home):
    code = "from kernel_backend.client import Client; print(Client.connect().health()['pid'])"
    environment = {**os.environ, "DAYLIGHT_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    found = discovery.find(home)
    assert found is not None
    assert found.pid == int(done.stdout)
    assert Client.connect(start=False, home=home).health()["pid"] == found.pid


def test_secrets_are_readable_by_their_owner_alone(running):
    assert mode(running) == 0o700
    for name in ("token", "service.json", "service.log", "server-python"):
        assert mode(running / name) == 0o600, name
    assert len((running / "token").read_text()) >= 32
    assert (running / "server-python").read_text() == sys.executable
    token = (running / "token").read_text()
    assert token not in (running / "service.json").read_text()
    assert token not in (running / "service.log").read_text()
    assert token not in " ".join(psutil.Process(discovery.find(running).pid).cmdline())


def test_it_listens_on_this_machine_only(running):
    pid = discovery.find(running).pid
    listening = [c.laddr.ip for c in psutil.Process(pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert listening == ["127.0.0.1"]
    code, told = run(running, "--host=0.0.0.0")
    assert code == 1
    assert "this machine only" in told


def test_many_who_start_at_once_find_one_service(home):
    with ThreadPoolExecutor(4) as callers:
        found = list(callers.map(lambda _: discovery.start(home), range(4)))
    assert len(set(found)) == 1
    until(lambda: serving(home) == [found[0].pid], "the others are on their way out")


def test_one_of_many_who_start_at_once_starts_it_and_the_others_wait(home, monkeypatch):
    started: list[Path] = []
    spawn = discovery._spawn

    def counted(home: Path, lock: IO[str]) -> subprocess.Popen[bytes]:
        started.append(home)
        return spawn(home, lock)

    monkeypatch.setattr(discovery, "_spawn", counted)
    with ThreadPoolExecutor(8) as callers:
        found = list(callers.map(lambda _: discovery.start(home), range(8)))
    assert len(set(found)) == 1
    assert len(started) == 1
    os.kill(found[0].pid, signal.SIGKILL)
    until(lambda: discovery.find(home) is None, "it is gone")
    with ThreadPoolExecutor(8) as callers:
        after = set(callers.map(lambda _: discovery.start(home), range(8)))
    assert len(after) == 1
    assert len(started) == 2, "the lock was given back by the death of the service"


SLOW = """
import os, sys, time
from pathlib import Path
from typing import IO
home = Path(os.environ["DAYLIGHT_HOME"])
(home / "pid").write_text(str(os.getpid()))
while not (home / "go on").exists():
    time.sleep(0.01)
print("the database has no room", flush=True)
sys.exit(int((home / "go on").read_text()))
"""


@pytest.fixture
def slow(home, monkeypatch, tmp_path):
    """Provide a service in whose place a program starts that waits for a file, and says why it cannot start."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path / 'slow.py'}\n")
    (tmp_path / "slow.py").write_text(SLOW)
    program.chmod(0o755)
    monkeypatch.setattr(discovery, "_interpreter", lambda home: str(program))
    monkeypatch.setattr(discovery, "TOLD_S", 0.0)
    return home


def pid_of(slow: Path) -> str:
    """Return the number of the newest process that began to start; "" if none has said it yet."""
    return (slow / "pid").read_text() if (slow / "pid").exists() else ""


def test_who_waits_is_told_what_for_and_that_it_failed(slow):
    told: list[str] = []
    with ThreadPoolExecutor(3) as callers:
        waiting = [callers.submit(discovery.start, slow, say=told.append) for _ in range(3)]
        until(lambda: len(told) == 3 and pid_of(slow), "each is told what it waits for")
        pid = pid_of(slow)
        (slow / "go on").write_text("1")
        for each in waiting:
            with pytest.raises(CannotStart, match=r"(?s)could not start\. The end of .*the database has no room"):
                each.result()
    assert any(
        f"is starting (process {pid}); waiting for it. Its log is {slow / 'service.log'}" in each for each in told
    )


def test_a_starter_that_dies_is_replaced_by_one_who_waits(slow):
    child = "from kernel_backend import discovery; import sys; discovery._interpreter = lambda home: sys.argv[1]; "
    child += "from pathlib import Path; discovery.start(Path(sys.argv[2]))"
    program = discovery._interpreter(slow)
    with subprocess.Popen([sys.executable, "-c", child, program, str(slow)]) as starter:
        until(lambda: pid_of(slow), "it starts a service")
        first = int(pid_of(slow))
        with ThreadPoolExecutor(1) as callers:
            told: list[str] = []
            waiting = callers.submit(discovery.start, slow, say=told.append)
            until(lambda: told, "it waits")
            starter.kill()
            starter.wait()
            assert not waiting.done(), "what was started goes on"
            os.kill(first, signal.SIGKILL)
            until(lambda: pid_of(slow) not in ("", str(first)), "it starts another")
            (slow / "go on").write_text("1")
            with pytest.raises(CannotStart):
                waiting.result()


def test_a_second_service_goes_away_and_tells_where_the_first_is(running):
    first = discovery.find(running)
    code, told = run(running)
    assert code == 0
    assert first.url in told
    assert discovery.find(running) == first


def test_it_ends_in_order_and_comes_back_with_what_it_knew(home):
    client = Client.connect(home=home)
    before = discovery.find(home)
    stop(home)
    assert discovery.find(home) is None
    assert not (home / "service.json").exists()
    assert client.experiments() == []  # the same client: it starts the service again
    after = discovery.find(home)
    assert after is not None
    assert after.pid != before.pid
    assert after.token == before.token


def test_a_caller_who_meets_a_service_on_its_way_out_gets_the_next_one(home):
    held = (
        "import sys, time; from pathlib import Path; from kernel_backend import discovery\n"
        "with discovery.lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(2)"
    )
    with subprocess.Popen([sys.executable, "-c", held, home], stdout=subprocess.PIPE, text=True) as leaving:
        assert leaving.stdout is not None
        assert leaving.stdout.readline() == "held\n"
        assert discovery.start(home).pid != leaving.pid


def test_a_service_that_an_attempt_started_does_not_belong_to_it(home, monkeypatch):
    monkeypatch.setenv(MARK, "an attempt's folder")
    address = discovery.start(home)
    assert MARK not in psutil.Process(address.pid).environ()


@pytest.mark.parametrize("name", ["service.json", "token"])
def test_a_running_service_is_found_again_though_its_files_were_deleted(home, name):
    running = discovery.start(home)
    (home / name).unlink()
    until(lambda: discovery.find(home) == running, "it is found again")
    assert Client.connect(start=False, home=home).health()["pid"] == running.pid
    assert stat.S_IMODE((home / name).stat().st_mode) == 0o600


def test_a_deleted_lock_lets_no_second_service_in(home):
    running = discovery.start(home)
    (home / "service.lock").unlink()
    until(lambda: (home / "service.lock").exists(), "there is a lock again")
    until(lambda: "already" in run(home)[1], "a second one goes away")
    assert discovery.find(home) == running


def test_a_service_that_was_killed_is_not_mistaken_for_a_living_one(home):
    first = discovery.start(home)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: discovery.find(home) is None, "it is gone")
    assert (home / "service.json").exists()
    assert discovery.start(home).pid != first.pid


def test_another_process_with_the_same_number_is_no_service(home):
    discovery.announce(home, "127.0.0.1", 1)
    assert discovery.find(home) is not None
    noted = json.loads((home / "service.json").read_text())
    (home / "service.json").write_text(json.dumps({**noted, "started": noted["started"] - 100}))
    assert discovery.find(home) is None
    (home / "service.json").write_text("{")
    assert discovery.find(home) is None
    (home / "service.json").write_text("[1]")
    assert discovery.find(home) is None


def test_a_service_on_another_machine_is_named(home):
    discovery.announce(home, "127.0.0.1", 1)
    noted = json.loads((home / "service.json").read_text())
    (home / "service.json").write_text(json.dumps({**noted, "machine": "node17"}))
    assert discovery.find(home) is None
    with discovery.lock(home) as ours:
        assert ours
        with pytest.raises(CannotStart, match="node17"):
            discovery.start(home)


def test_an_idle_service_ends_by_itself(home):
    done = subprocess.run(
        [sys.executable, "-m", "kernel_backend", "--idle-timeout=0.5"],
        env={**os.environ, "DAYLIGHT_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0
    assert "nothing to do" in done.stderr
    assert discovery.find(home) is None


def test_the_files_settings_hold_and_the_command_line_has_the_last_word(home, tmp_path):
    settings = tmp_path / "settings.py"
    settings.write_text("c.Daylight.idle_timeout = 0.5\nc.Daylight.port = 1\n")
    code, told = run(home, f"--config={settings}", "--port=0")
    assert code == 0
    assert "for 0.5 s" in told


def test_a_bad_pool_of_the_settings_is_told_and_the_service_runs(home, tmp_path):
    settings = tmp_path / "settings.py"
    settings.write_text("c.Daylight.idle_timeout = 0.5\nc.Daylight.pools = {'gpu': {'engine': 'slrm'}}\n")
    code, told = run(home, f"--config={settings}")
    assert code == 0
    assert "pool gpu cannot be used: engine: Input should be 'slurm' or 'kubernetes', not 'slrm'" in told


def test_a_taken_port_is_said_in_a_sentence(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, told = run(home, f"--port={taken.getsockname()[1]}")
    assert code == 1
    assert "Traceback" not in told
    assert "in use" in told


def test_a_service_that_cannot_start_shows_the_end_of_its_log(home):
    (home / "daylight.db").write_text("this is no database, it is a poem about one\n" * 100)
    with pytest.raises(CannotStart, match=r"The end of .*service.log"):
        discovery.start(home)


def test_an_interpreter_without_the_server_asks_the_one_that_has_it(home, monkeypatch):
    monkeypatch.setattr(discovery, "_NEEDED", ("surely_not_installed",))
    with pytest.raises(ServiceUnreachable, match="daylight serve"):
        discovery.start(home)
    (home / "server-python").write_text("/no/such/python")
    with pytest.raises(ServiceUnreachable, match="daylight serve"):
        discovery.start(home)
