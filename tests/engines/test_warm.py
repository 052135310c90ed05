"""Test the protocol of forkservers with a light one: ranks start, their exits are reported, no process is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kernel_backend.engines.local import LocalEngine
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.forkserver import protocol as line
from kernel_backend.launch.forkserver.client import Forkserver, NoForkserver, WarmRanks
from kernel_backend.launch.forkserver.endpoint import ForkserverEndpoint, accept
from kernel_backend.launch.gang import Gang
from kernel_backend.launch.rank_spec import RankRequest, RankSpec
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from tests.support.builders import share
from tests.support.world import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has what forked ranks need")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def python(tmp_path: Path) -> str:
    """Provide an interpreter that runs the light forkserver in place of the real one."""
    script = tmp_path / "python"
    light = Path(__file__).with_name("light_forkserver.py")
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {sys.executable} {light} "$4" "$5" "$6" "$7"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Provide a home whose forkservers end with the test."""
    yield tmp_path / "home"
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(tmp_path / "home") in process.cmdline():
                process.kill()


@pytest.fixture
def server(python: str, home: Path) -> Callable[..., Forkserver]:
    """Provide a function `server()` that returns a client of this home's forkserver."""
    return lambda idle_s=60.0, at=home: Forkserver(python, at, str(ROOT), dict(os.environ), idle_s)


class Ranks:
    """Ranks requested like a launcher does, with their pipes and logs."""

    def __init__(self, server: Forkserver, folder: Path, *environments: dict[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        self.logs = [folder / f"rank-{rank}.log" for rank in range(len(environments))]
        self.pipes = [os.pipe() for _ in environments]
        outputs = [os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for log in self.logs]
        orders = [RankSpec(env, pipe[0], out) for env, pipe, out in zip(environments, self.pipes, outputs, strict=True)]
        self.request = RankRequest(str(folder), str(folder), tuple(orders))
        self.warm = WarmRanks(server, self.request)

    def exist(self) -> Ranks:
        until(lambda: self.warm.codes() and self.warm.pids(), "the ranks exist")
        self.close()
        return self

    def ended(self) -> tuple[int | None, ...]:
        until(lambda: None not in self.warm.codes(), "the ranks end")
        return tuple(self.warm.codes())

    def close(self) -> None:
        self.request.close()
        for _, writing in self.pipes:
            with contextlib.suppress(OSError):
                os.close(writing)


@pytest.fixture
def ranks(server, tmp_path: Path) -> Callable[..., Ranks]:
    """Provide a function `ranks({"EXIT": "3"}, ...)` that starts a rank for each environment."""
    return lambda *environments, of=None: Ranks(of or server(), tmp_path / "attempt", *environments)


def gone(pid: int) -> bool:
    """Return True if no process with this id runs; zombies do not count."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def server_of(found: Ranks) -> psutil.Process:
    parent = psutil.Process(found.warm.pids()[0]).parent()
    assert parent is not None
    return parent


def test_every_exit_code_and_signal_comes_back(ranks):
    found = ranks({"EXIT": "0"}, {"EXIT": "85"}, {"EXIT": "1"}, {"SECONDS": "60"}).exist()
    os.kill(found.warm.pids()[3], signal.SIGSEGV)
    assert found.ended() == (0, 85, 1, -signal.SIGSEGV)
    assert found.warm.lost is None


def test_a_rank_has_its_three_files_open_and_none_of_the_forkservers(ranks):
    others = ranks({"SECONDS": "60"}).exist()  # another launcher's, whose line and handle are the forkserver's
    found = ranks({}, {}, {}).exist()
    assert found.ended() == (0, 0, 0)
    for rank, log in enumerate(found.logs):
        number, _, *files, _ = log.read_text().splitlines()[-1].split()
        assert (number, files) == (str(rank), ["0", "1", "2", "3"])  # the last is that of the listing itself
    others.warm.end()


def test_a_request_may_be_larger_than_a_message(ranks):
    found = ranks({"EXIT": "4", "LONG": "x" * 3_000_000}).exist()
    assert found.ended() == (4,)


def test_two_launchers_that_start_it_at_once_get_the_same_one(server, ranks, home):
    first, second = ranks({"SECONDS": "60"}, of=server()), ranks({"SECONDS": "60"}, of=server())
    first.exist()
    second.exist()
    assert server_of(first).pid == server_of(second).pid
    assert list(first.warm.end()) == [0]
    second.warm.end()


def test_the_next_launcher_finds_it_running(ranks):
    first = ranks({}).exist()
    assert first.ended() == (0,)
    again = ranks({}).exist()
    assert again.ended() == (0,)
    parents = {each.read_text().split()[1] for each in first.logs + again.logs}
    assert len(parents) == 1


def test_end_kills_all_that_live_and_says_who_they_were(ranks):
    found = ranks({"EXIT": "3"}, {"SECONDS": "60"}, {"SECONDS": "60"}).exist()
    until(lambda: found.warm.codes()[0] == 3, "the first rank ends")
    pids = found.warm.pids()
    assert list(found.warm.end()) == [1, 2]
    assert found.warm.codes() == (3, -9, -9)
    assert all(gone(pid) for pid in pids)


def test_a_signal_reaches_every_rank(ranks):
    found = ranks({"SECONDS": "60"}, {"SECONDS": "60"}).exist()
    found.warm.signal(signal.SIGUSR2)
    assert found.ended() == (-signal.SIGUSR2, -signal.SIGUSR2)


def test_the_ranks_of_a_launcher_that_is_killed_die_and_no_others(ranks):
    others = ranks({"SECONDS": "60"}).exist()
    reading, writing = os.pipe()
    launcher = os.fork()
    if launcher == 0:
        try:
            found = ranks({"SECONDS": "60"}, {"SECONDS": "60"}).exist()
            os.write(writing, " ".join(map(str, found.warm.pids())).encode())
            time.sleep(60)
        finally:
            os._exit(1)
    pids = [int(pid) for pid in os.read(reading, 100).split()]
    assert {psutil.Process(pid).ppid() for pid in pids} == {server_of(others).pid}
    os.kill(launcher, signal.SIGKILL)
    os.waitpid(launcher, 0)
    until(lambda: all(gone(pid) for pid in pids), "its ranks die")
    assert others.warm.codes() == (None,)
    others.warm.end()


def test_the_forkserver_of_one_launcher_ends_with_it(python, home, ranks):
    reading, writing = os.pipe()
    launcher = os.fork()
    if launcher == 0:
        try:
            found = ranks({"SECONDS": "60"}, of=Forkserver(python, home, "/", dict(os.environ), only=True)).exist()
            os.write(writing, f"{found.warm.pids()[0]} {server_of(found).pid}".encode())
            time.sleep(60)
        finally:
            os._exit(1)
    pids = [int(pid) for pid in os.read(reading, 100).split()]
    os.kill(launcher, signal.SIGKILL)
    os.waitpid(launcher, 0)
    until(lambda: all(gone(pid) for pid in pids), "its forkserver and its rank end")


def test_a_launcher_ends_the_forkserver_that_it_has_started(python, home, ranks):
    own = Forkserver(python, home, "/", dict(os.environ), only=True)
    own.start()
    found = ranks({"SECONDS": "60"}, of=own).exist()
    server = server_of(found).pid
    assert list(found.warm.end()) == [0]
    own.end()
    assert gone(server)


def test_the_ranks_of_a_forkserver_that_is_killed_die_and_count_as_lost(ranks):
    found = ranks({"EXIT": "0"}, {"SECONDS": "60"}).exist()
    until(lambda: found.warm.codes()[0] == 0, "the first rank ends")
    server_of_second = psutil.Process(found.warm.pids()[1]).parent()
    server_of_second.kill()
    assert found.ended() == (0, -9)
    assert found.warm.lost == "the forkserver ended, and rank 1 with it"
    assert gone(found.warm.pids()[1])
    again = ranks({"EXIT": "5"}).exist()  # what it left at its door is no hindrance
    assert again.ended() == (5,)
    assert again.warm.lost is None


def test_a_stopped_forkserver_is_waited_for_so_long_and_gives_its_ranks_up(ranks, monkeypatch):
    first = ranks({"SECONDS": "60"}).exist()
    until(lambda: first.logs[0].read_text().endswith("\n"), "it has said its line")
    server = server_of(first)
    server.suspend()
    monkeypatch.setattr("kernel_backend.launch.forkserver.client.START_S", 0.3)
    monkeypatch.setattr("kernel_backend.launch.forkserver.client.ANSWER_S", 0.3)
    second = ranks({"SECONDS": "60"})
    with pytest.raises(NoForkserver, match="gave no ranks within"):
        until(lambda: second.warm.codes() and False, "never")
    assert list(first.warm.end()) == [0]  # it is killed without the forkserver's help, which would tell of it
    assert first.warm.lost == "rank 0 ended, and the forkserver, which does not answer, cannot say how"
    monkeypatch.undo()
    server.resume()
    third = ranks({}).exist()
    assert third.ended() == (0,)
    until(lambda: server.children() == [], "what nobody waits for was never forked")
    assert second.logs[0].read_text().count("\n") == 2  # the lines of the first and of the third


def test_an_engine_finds_forked_ranks_and_their_workers_by_their_logs_and_nobody_else(server, home, tmp_path):
    """A process forked from a forkserver shows only the forkserver's environment."""
    key = AttemptId(1, 1, 1)
    mine, same_key_elsewhere = attempt_folder(home, key), attempt_folder(tmp_path / "another", key)
    mine.mkdir(parents=True)
    same_key_elsewhere.mkdir(parents=True)
    asked = Ranks(server(), mine, {"SECONDS": "60", "WORKER": "1"}).exist()
    others = Ranks(server(), same_key_elsewhere, {"SECONDS": "60"}).exist()
    until(lambda: asked.logs[0].read_text().count("\n") == 2, "the rank has a worker")
    both = [int(line.split()[-1]) for line in asked.logs[0].read_text().splitlines()]
    asyncio.run(LocalEngine(home).kill(key))
    assert all(gone(pid) for pid in both)
    assert asked.ended() == (-9,)
    assert others.warm.codes() == (None,)
    assert server_of(others).is_running()
    others.warm.end()


def test_ranks_that_are_ended_before_they_exist_never_do(ranks):
    keeper = ranks({"SECONDS": "60"}).exist()
    server = server_of(keeper)
    server.suspend()
    asked = ranks({"SECONDS": "60"})
    assert asked.warm.codes() == (None,)
    os.kill(server.pid, signal.SIGCONT)
    assert list(asked.warm.end()) == [0]
    assert asked.warm.codes() == (-9,)
    until(lambda: len(server.children()) == 1, "only the other launcher's rank is there")
    keeper.warm.end()


def test_a_forkserver_that_cannot_start_says_its_last_words(home, ranks):
    broken = Forkserver("/bin/false", home, "/", dict(os.environ))
    broken.endpoint.log.write_text("ImportError: no torch here\n")
    found = ranks({}, of=broken)
    with pytest.raises(NoForkserver, match="ended with code 1: ImportError: no torch here"):
        until(lambda: found.warm.codes() and False, "never")


def test_a_gang_without_a_forkserver_starts_cold_and_its_launcher_says_why(tmp_path, home, caplog):
    standin = Path(__file__).with_name("standin_rank.py")
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{ROOT}"\n'
        f'if [ "$3" = kernel_backend.runner ]; then exec {sys.executable} {standin} "$4"; fi\n'
        "echo No module named torch; exit 3\n"
    )
    python.chmod(0o755)
    job = LaunchSpec(
        experiment=1,
        trial=1,
        attempt=1,
        config=Config(slots=2, threads=1),
        params={"seconds": 0.1},
        placement=(share(),),
        python=str(python),
        cwd=str(tmp_path),
        code=str(tmp_path),
        snapshot="0" * 64,
        checkpoints=str(tmp_path),
        home=str(home),
    )
    folder = AttemptFolder(attempt_folder(home, job.id))
    folder.prepare(job, "token")
    gang = Gang(job, folder)
    until(lambda: None not in gang.codes().values(), "the ranks end")
    gang.close()
    assert gang.codes() == {0: 0, 1: 0}
    assert len(json.loads((folder.path / "ranks.json").read_bytes())) == 2
    assert "the ranks start cold: the forkserver cannot be asked" in caplog.text
    assert "ended with code 3: No module named torch" in caplog.text


def test_an_environment_that_starts_threads_has_no_forkserver_and_says_why(home, ranks, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), name='telemetry', daemon=True).start()\n"
    )
    watched = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    found = ranks({}, of=Forkserver(sys.executable, home, "/", watched))
    with pytest.raises(NoForkserver, match=r"started threads \['telemetry'\]"):
        until(lambda: found.warm.codes() and False, "never")


def test_nonsense_at_the_door_harms_nobody(server, ranks):
    others = ranks({"SECONDS": "60"}).exist()
    for message in (b"start", b"{}", b"x" * 60_000):
        stranger = server().endpoint.connect()
        assert stranger is not None
        stranger.send(message)
        assert line.receive_messages(_waiting(stranger)) is None  # hung up on
    assert others.warm.codes() == (None,)
    others.warm.end()
    assert "this is no request" in server().endpoint.log.read_text()


def _waiting(stranger: socket.socket) -> socket.socket:
    until(lambda: line.hung_up(stranger), "the forkserver hangs up")
    return stranger


def test_two_hundred_forks_leave_nothing_behind(ranks):
    keeper = ranks({"SECONDS": "60"}).exist()
    server = server_of(keeper)
    # What it has asked for is told exactly. What it has is not: many cores make a kernel round it, huge pages fill it.
    files, memory = server.num_fds(), server.memory_info().data
    for _ in range(50):
        found = ranks({}, {}, {"EXIT": "1"}, {"SECONDS": "60"}).exist()
        until(lambda found=found: found.warm.codes()[:3] == (0, 0, 1), "three ranks end")
        found.warm.end()
    until(lambda: len(server.children()) == 1, "no child is left but the keeper")
    until(lambda: server.num_fds() <= files, "no file is left open")
    assert server.memory_info().data - memory < 1_500_000  # Python asks for a MiB at a time
    keeper.warm.end()


def test_an_idle_forkserver_ends_and_leaves_nothing(server, ranks, home):
    found = ranks({"SECONDS": "60"}, of=server(idle_s=0.3)).exist()
    process = server_of(found)
    time.sleep(1.0)
    assert not gone(process.pid)  # it is not idle while a rank lives
    assert list(found.warm.end()) == [0]
    until(lambda: gone(process.pid), "it ends")
    assert not list((home / "forkservers").iterdir())


def test_a_forkserver_whose_home_is_gone_ends_when_its_last_rank_has(server, ranks, home):
    found = ranks({"SECONDS": "60"}).exist()
    process = server_of(found)
    shutil.rmtree(home)
    assert list(found.warm.end()) == [0]
    assert found.ended() == (-9,)
    until(lambda: gone(process.pid), "it ends")


def test_a_deep_home_has_a_forkserver_too(server, ranks, tmp_path):
    deep = tmp_path.joinpath(*["a-rather-long-name-of-a-folder"] * 8)
    found = ranks({"EXIT": "9"}, of=server(at=deep, idle_s=0.3)).exist()
    assert len(os.fsencode(server(at=deep).endpoint.address)) > 108
    assert found.ended() == (9,)
    until(lambda: not list((deep / "forkservers").iterdir()), "it ends")


def test_its_folder_and_socket_are_its_users_alone(server, ranks, home):
    found = ranks({"SECONDS": "60"}).exist()
    endpoint = server().endpoint
    assert stat.S_IMODE(endpoint.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(endpoint.address.stat().st_mode) == 0o600
    found.warm.end()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_is_turned_away_even_where_every_file_is_open():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        endpoint = ForkserverEndpoint.at(Path(folder), "key")
        listener = endpoint.listen()
        endpoint.folder.chmod(0o755)
        endpoint.address.chmod(0o666)
        code = "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
        code += "s.connect(sys.argv[1]); print(s.recv(1))"
        stranger = subprocess.Popen([sys.executable, "-c", code, str(endpoint.address)], stdout=subprocess.PIPE)
        assert accept(listener) is None
        assert stranger.communicate(timeout=600)[0] == b"b''\n"


def test_one_process_at_a_door(tmp_path: Path):
    endpoint = ForkserverEndpoint.at(tmp_path, "key")
    lock = endpoint.lock()
    assert lock is not None
    assert endpoint.lock() is None
    endpoint.remove()
    assert endpoint.lock() is not None  # the next one's lock is another file
