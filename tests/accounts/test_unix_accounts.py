"""Test real Unix accounts: processes and files belong to their users, and symbolic links lead to no other user's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from kernel_backend.checkpoints.directory import Directory
from kernel_backend.data.declared import declare
from kernel_backend.errors import DaylightError, Forbidden, NotFound, PlaceUnavailable
from kernel_backend.inputs.fetch import FetchRequest, Input
from kernel_backend.model.ids import AttemptId
from kernel_backend.unix_users.agents import Agents
from kernel_backend.unix_users.checkpoints import AgentCheckpoints
from kernel_backend.unix_users.engine import UnixUserEngine
from kernel_backend.unix_users.notes import GangNotes
from kernel_backend.unix_users.spawn import by_helper
from kernel_backend.unix_users.workspaces import AgentWorkspace
from tests.accounts.unix import Accounts, needed
from tests.support.bad_network import distant_store
from tests.support.remote_samples import FUNCTIONS, SAMPLES, put_samples
from tests.support.world import LASTING, until

pytestmark = pytest.mark.distributed

_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_LOG = {"rank": 0, "offset": 0, "tail": None}


@pytest.fixture(scope="module")
def accounts() -> Iterator[Accounts]:
    made = Accounts(needed())
    (made.base / "cache").mkdir()
    (made.base / "cache").chmod(0o1777)
    made.environment["DAYLIGHT_CACHE"] = str(made.base / "cache")
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def trained(accounts) -> dict[str, int]:
    """Train an experiment of each user at the same time, on Horovod and on torch, and return them."""
    hurry = accounts.base / "hurry"
    lasts = {"epochs": 12, "pause": 0.5, "hurry": str(hurry)}
    numbers = {
        accounts.leslie: accounts.submit(accounts.leslie, LASTING, **lasts, backend="horovod"),
        accounts.dave: accounts.submit(accounts.dave, LASTING, **lasts, backend="torch"),
    }
    for name, number in numbers.items():
        accounts.reached(name, number, 2)
    for name in numbers:
        ranks = accounts.processes(name, "kernel_backend.runner")
        assert len(ranks) == 2, accounts.log("service")
        for process in ranks:
            status = Path(f"/proc/{process.pid}/status").read_text()
            uid, gid = accounts.user(name).pw_uid, accounts.user(name).pw_gid
            assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n" in status
            assert f"Gid:\t{gid}\t{gid}\t{gid}\t{gid}\n" in status
            assert "CapEff:\t0000000000000000\n" in status
    hurry.touch()
    for name, number in numbers.items():
        assert accounts.ended(name, number).state == "completed"
    return numbers


def as_agent(accounts: Accounts, helper: Path | None = None) -> Agents:
    """Return agents as the service starts them; the tests run as root, which the helper refuses to serve."""

    def spawn(user: str, stdin: socket.socket) -> None:
        uid = accounts.user(accounts.service_user).pw_uid
        child = os.fork()
        if child == 0:
            try:
                os.setresuid(uid, uid, uid)
                by_helper(helper or accounts.helper_socket)(user, stdin)
                os._exit(0)
            except Forbidden:
                os._exit(3)
            except BaseException:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 3:
            raise Forbidden("refused")
        if code:
            raise OSError("the helper did not start it")

    return Agents(spawn, answer_s=30.0, start_s=60.0, wait_s=60.0)


@pytest.fixture(scope="module")
def agents(accounts) -> Iterator[Agents]:
    made = as_agent(accounts)
    yield made
    made.close()


def test_two_users_train_at_the_same_time_as_themselves(accounts, trained):
    for name, number in trained.items():
        (trial,) = accounts.client(name).experiment(number).trials
        assert (trial.step, trial.failures) == (96, 0)
        (newest,) = [each for each in accounts.client(name).checkpoints(number) if each.step == 96]
        assert accounts.client(name).verify(number, 1, newest.id).verified == "yes"


def fetched_by_hand(accounts: Accounts, name: str, url: str) -> dict[str, Any]:
    """Fetch an input as a user, in a shell whose files others may read; return the result."""
    declared = declare([f"train={url}"], accounts.base)
    listed, request = accounts.base / "listed.tsv", accounts.base / "request.json"
    listed.write_bytes(declared.files[declared.data[0].listed])
    wanted = Input(name="train", url=url, digest=declared.data[0].digest, listed=str(listed))
    root = accounts.environment["DAYLIGHT_CACHE"]
    request.write_text(FetchRequest(root=root, inputs=(wanted,)).model_dump_json() + "\n")
    variables = [
        f"{key}={value}" for key, value in {**accounts.environment, "HOME": accounts.user(name).pw_dir}.items()
    ]
    line = f"umask 022; exec {accounts.python} -P -m kernel_backend.inputs <{request}"
    done = accounts.as_user(name, "env", "-i", *variables, "sh", "-c", line)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_users_keep_the_data_of_a_store_apart_and_one_without_rights_to_it_reads_nothing(accounts):
    leslie, dave = accounts.leslie, accounts.dave
    with distant_store() as (bucket, network):
        data, url = put_samples(accounts.base / "samples", f"{bucket}/train"), f"{bucket}/train"
        for name in (leslie, dave):
            accounts.own_store(name, network.address)
        remote = accounts.submit(leslie, FUNCTIONS, data=[f"train={url}"])
        plain = accounts.submit(leslie, FUNCTIONS, train=str(data))
        assert [accounts.ended(leslie, each).state for each in (remote, plain)] == ["completed"] * 2
        stored = accounts.area(leslie) / "checkpoints"
        one, other = (Directory(stored / str(each) / "1").committed()[-1].parts for each in (remote, plain))
        assert [part.digest for part in one] == [part.digest for part in other]
        found = fetched_by_hand(accounts, dave, url)
        assert len(list(Path(found["places"]["train"]).rglob("*.npy"))) == SAMPLES
        for checked in accounts.base.glob("cache/*/views/*/checked-*"):
            os.utime(checked, (0, 0))  # so that the store is asked again
        network.strangers = frozenset({dave})
        failed = accounts.ended(dave, accounts.submit(dave, FUNCTIONS, data=[f"train={url}"]))
    failure = failed.attempts[-1].failure
    assert failure is not None
    assert "the credentials of the training may not read it, or have expired" in failure.message
    for name, other in ((leslie, dave), (dave, leslie)):
        folder = accounts.base / "cache" / str(accounts.user(name).pw_uid)
        assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (accounts.user(name).pw_uid, 0o700)
        assert "Permission denied" in accounts.as_user(other, "ls", str(folder)).stderr


def test_all_files_are_their_owners_and_nobody_elses_to_read(accounts, trained):
    for name, number in trained.items():
        area = accounts.area(name)
        assert (area / "checkpoints" / str(number) / "1").is_dir()
        paths = [Path(top, each) for top, folders, files in os.walk(area) for each in (".", *folders, *files)]
        for path in paths:
            with contextlib.suppress(FileNotFoundError):  # an agent that tidies up has deleted it since
                about = path.lstat()
                assert about.st_uid == accounts.user(name).pw_uid, path
                assert not about.st_mode & 0o077, path
    other = accounts.area(accounts.dave)
    for what in (other, next(other.glob("attempts/*/job.json")), next(other.glob("checkpoints/*/*/*/manifest.json"))):
        assert accounts.as_user(accounts.leslie, "cat", str(what)).stderr.endswith("Permission denied\n")


def test_a_user_reaches_neither_the_services_home_nor_the_helper(accounts, trained):
    for path in (accounts.home / "daylight.db", accounts.home / "people.json", accounts.home):
        assert "Permission denied" in accounts.as_user(accounts.dave, "ls", str(path)).stderr
    code = "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(sys.argv[1])"
    tried = accounts.as_user(accounts.dave, accounts.python, "-c", code, str(accounts.helper_socket))
    assert "PermissionError" in tried.stderr
    away = f"rm -f {accounts.helper_socket}; mv {accounts.helper_socket} away"
    accounts.as_user(accounts.dave, "sh", "-c", away)
    assert accounts.helper_socket.exists()


def test_the_service_itself_can_neither_read_nor_change_what_users_have(accounts, trained):
    tried = accounts.as_user(accounts.service_user, "ls", str(accounts.area(accounts.dave)))
    assert "Permission denied" in tried.stderr


def test_of_others_one_sees_nothing_and_changes_nothing(accounts, trained):
    mine, theirs = accounts.client(accounts.leslie), trained[accounts.dave]
    (kept,) = [each for each in accounts.client(accounts.dave).checkpoints(theirs) if each.step == 96]
    with pytest.raises(DaylightError) as raised:
        mine.delete(theirs, 1, kept.id)
    assert raised.value.http_status in (403, 404)
    assert kept.id in [each.id for each in accounts.client(accounts.dave).checkpoints(theirs)]


def test_a_deleted_checkpoint_is_deleted_by_its_owner(accounts, trained):
    number = accounts.submit(accounts.dave, epochs=3, keep={"latest": 9})
    accounts.ended(accounts.dave, number)
    client, folder = accounts.client(accounts.dave), accounts.area(accounts.dave) / "checkpoints" / str(number) / "1"
    first = client.checkpoints(number)[0]
    client.pin(number, 1, first.id)
    assert (folder / first.id / "pinned").stat().st_uid == accounts.user(accounts.dave).pw_uid
    client.pin(number, 1, first.id, pinned=False)
    client.delete(number, 1, first.id)
    assert not (folder / first.id).exists()


# What the helper refuses


@pytest.mark.parametrize(
    "name",
    ["root", "daemon", "nobody", "no-such-user", "", "0", "../root", "ro\0ot", "root\n", "é", "x" * 300],
    ids=["root", "system", "nobody", "unknown", "empty", "number", "path", "null", "newline", "unicode", "long"],
)
def test_the_helper_starts_nothing_for_whoever_is_no_user(accounts, name):
    agents = as_agent(accounts)
    with pytest.raises(Forbidden):
        agents.check(name)
    started = accounts.helper().children(recursive=True)
    assert [each for each in started if "kernel_backend.agent" in each.cmdline() and each.uids().real < 1000] == []
    agents.close()


def test_the_helper_starts_nothing_as_the_service(accounts, agents):
    with pytest.raises(Forbidden):
        agents.check(accounts.service_user)


def test_the_helper_obeys_nobody_but_the_service_not_even_root(accounts):
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises((Forbidden, OSError)):  # which of the two depends on who is quicker
        by_helper(accounts.helper_socket)(accounts.dave, theirs)
    until(lambda: "user 0 is not the service" in accounts.log("helper"), "the helper has refused")


def test_the_helper_takes_garbage_for_garbage_and_goes_on(accounts, agents, tmp_path):
    uid = accounts.user(accounts.service_user).pw_uid

    def said(data: bytes, descriptors: list[int]) -> str:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.setresuid(uid, uid, uid)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as helper:
                helper.connect(str(accounts.helper_socket))
                socket.send_fds(helper, [data], descriptors)
                os.write(writing, helper.recv(4096))
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as file:
            return file.read()

    dave = accounts.dave.encode()
    ours, theirs = socket.socketpair()
    secret = os.open(tmp_path, os.O_RDONLY)
    with ours, theirs:
        assert said(dave, []).startswith("refused: a request is a name and one descriptor")
        assert said(dave, [theirs.fileno(), theirs.fileno()]).startswith("refused: ")
        assert said(dave, [secret]).startswith("refused: the descriptor of a request is a socket")
        assert said(b"\xff\xfe" * 100, [theirs.fileno()]).startswith("refused: ")
        assert said(dave + b" -c id", [theirs.fileno()]).startswith("refused: there is no account")
        assert said(b"A" * 100_000, [theirs.fileno()]).startswith("refused: ")
    os.close(secret)
    agents.check(accounts.dave)


def test_an_agent_has_nothing_of_roots(accounts, agents):
    agents.check(accounts.dave)
    process = accounts.processes(accounts.dave, "kernel_backend.agent")[-1]
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert "CapEff:\t0000000000000000\n" in status
    assert "Umask:\t0077\n" in status
    groups = next(line for line in status.splitlines() if line.startswith("Groups:"))
    assert groups.split()[1:] == [str(accounts.user(accounts.dave).pw_gid)]
    environment = process.environ()
    kept, own = {"PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "DAYLIGHT_CACHE"}, {"HOME", "USER", "LOGNAME", "SHELL"}
    assert set(environment) <= kept | own
    assert process.cwd() == accounts.user(accounts.dave).pw_dir
    assert process.cmdline()[1:] == ["-P", "-m", "kernel_backend.agent"]
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        assert "spawn.sock" not in os.readlink(descriptor)
        assert "helper.log" not in os.readlink(descriptor)


# Symlinks of a user's: each operation is tried where it would hurt a stronger one


@pytest.fixture
def secret(accounts) -> Path:
    """Provide a file that only leslie can read, next to an intact checkpoint of hers."""
    folder = Path(accounts.user(accounts.leslie).pw_dir) / "private"
    folder.mkdir(exist_ok=True)
    path = folder / "secret.txt"
    path.write_text("the secret of leslie\n")
    for each in (folder, path):
        os.chown(each, accounts.user(accounts.leslie).pw_uid, accounts.user(accounts.leslie).pw_gid)
        each.chmod(0o700)
    return path


@pytest.fixture
def lured(accounts, secret):
    """Provide a function `lured(path, to)` that replaces a path in dave's workspace by a symbolic link."""

    def make(path: Path, to: Path) -> None:
        code = "import pathlib, shutil, sys; p = pathlib.Path(sys.argv[1]); shutil.rmtree(p, True); p.unlink(True); "
        code += "p.parent.mkdir(parents=True, exist_ok=True); p.symlink_to(sys.argv[2])"
        done = accounts.as_user(accounts.dave, accounts.python, "-c", code, str(path), str(to))
        assert done.returncode == 0, done.stderr

    return make


def attempts(accounts: Accounts, number: int) -> Path:
    return accounts.area(accounts.dave) / "attempts" / f"{number}.1-1"


TARGETS = {
    "the secret of another": lambda accounts, secret: secret,
    "the database": lambda accounts, secret: accounts.home / "daylight.db",
    "the tokens": lambda accounts, secret: accounts.home / "people.json",
    "what only root may read": lambda accounts, secret: Path("/etc/shadow"),
}


@pytest.mark.parametrize("target", TARGETS)
def test_a_log_that_is_a_symlink_shows_nothing_of_others(accounts, trained, secret, lured, target):
    number, to = trained[accounts.dave], TARGETS[target](accounts, secret)
    before = to.read_bytes()
    lured(attempts(accounts, number) / "rank-0.log", to)
    with pytest.raises(DaylightError) as raised:
        accounts.client(accounts.dave).logs(number, rank=0)
    assert "Permission denied" in raised.value.message
    assert to.read_bytes() == before


def test_an_attempts_folder_that_is_a_symlink_gives_and_deletes_nothing_of_others(accounts, agents, secret, lured):
    key = AttemptId(900, 1, 1)
    lured(accounts.area(accounts.dave) / "attempts" / str(key), secret.parent)
    for op, more in (("records", {"after": 0, "begin": {}}), ("forget", {}), ("logs", _LOG), ("kill", {})):
        with contextlib.suppress(OSError, DaylightError):
            assert not agents.ask(accounts.dave, op, _ANY, key=str(key), **more)
    assert secret.read_text() == "the secret of leslie\n"
    assert [each.name for each in secret.parent.iterdir()] == ["secret.txt"]


def test_a_spool_that_is_a_symlink_is_not_read_for_its_owner(accounts, agents, secret, lured):
    folder = accounts.area(accounts.dave) / "attempts" / "901.1-1"
    lured(folder / "spool.jsonl", secret)
    with pytest.raises(PermissionError):
        agents.ask(accounts.dave, "records", _ANY, key="901.1-1", after=0, begin={})


@pytest.mark.parametrize("target", ["private", "checkpoints"])
def test_checkpoints_that_are_symlinks_are_neither_read_nor_deleted(accounts, agents, trained, secret, lured, target):
    theirs = accounts.area(accounts.leslie) / "checkpoints" / str(trained[accounts.leslie]) / "1"
    to = {"private": secret.parent, "checkpoints": theirs}[target]
    before = sorted(str(path.relative_to(to)) for path in to.rglob("*"))
    place = AgentCheckpoints(agents, accounts.dave, 902, 1, uid="")
    lured(accounts.area(accounts.dave) / "checkpoints" / "902" / "1", to)
    name = next((each for each in before if "-" in each and "/" not in each), "5-1")
    for act in (
        place.committed,
        place.aside,
        lambda: place.discard(name),
        lambda: place.set_aside(name),
        lambda: place.sweep(99),
        lambda: place.pin(name, True),
        lambda: place.fence(7),
        lambda: place.write("5-1", "model", [b"mine"]),
    ):
        with contextlib.suppress(OSError, DaylightError):
            assert not act()
    assert sorted(str(path.relative_to(to)) for path in to.rglob("*")) == before
    assert secret.read_text() == "the secret of leslie\n"


def test_an_artifact_that_is_a_symlink_is_not_served(accounts, agents, secret, lured):
    area = AgentWorkspace(agents, accounts.dave)
    lured(accounts.area(accounts.dave) / "artifacts" / "903" / "1" / "picture.png", secret)
    with pytest.raises(NotFound):
        area.artifact(903, 1, "picture.png")
    lured(accounts.area(accounts.dave) / "artifacts" / "904", secret.parent)
    with pytest.raises((NotFound, PlaceUnavailable, OSError)):
        area.artifact(904, 1, "secret.txt")


def test_a_whole_area_that_is_a_symlink_gives_no_one_elses(accounts, trained, lured):
    """The whole workspace of dave is a link to another user's, until the end of the test."""
    mine, aside = accounts.area(accounts.dave), accounts.area(accounts.dave).with_name("aside")
    away = f"mv {mine} {aside} && ln -s {accounts.area(accounts.leslie)} {mine}"
    done = accounts.as_user(accounts.dave, "sh", "-c", away)
    assert done.returncode == 0, done.stderr
    agents = as_agent(accounts)
    try:
        with pytest.raises((PlaceUnavailable, OSError)):
            AgentCheckpoints(agents, accounts.dave, trained[accounts.leslie], 1, uid="").committed()
    finally:
        agents.close()
        accounts.as_user(accounts.dave, "sh", "-c", f"rm {mine} && mv {aside} {mine}")
    assert list((accounts.area(accounts.leslie) / "checkpoints").iterdir())


# What befalls agents while trainings run


def test_killed_and_stopped_agents_disturb_no_training(accounts, trained):
    number = accounts.submit(accounts.dave, epochs=20, pause=0.05)
    other = accounts.submit(accounts.leslie, epochs=4, pause=0.05)
    for step in (2, 20, 40):
        accounts.reached(accounts.dave, number, step)
        for process in accounts.processes(accounts.dave, "kernel_backend.agent"):
            process.send_signal(signal.SIGSTOP if step == 20 else signal.SIGKILL)
    assert accounts.ended(accounts.leslie, other).state == "completed"
    overview = accounts.ended(accounts.dave, number)
    assert (overview.state, overview.trials[0].attempt, overview.trials[0].failures) == ("completed", 1, 0)


STOPS_ITS_AGENTS = """
import os, pathlib, signal, time
while True:
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():  # these very lines name the agent as well
            continue
        try:
            if folder.stat().st_uid == os.getuid() and b"kernel_backend.agent" in (folder / "cmdline").read_bytes():
                os.kill(int(folder.name), signal.SIGSTOP)
        except (OSError, ValueError):
            pass
    time.sleep(0.05)
"""


def refused(accounts: Accounts, number: int) -> str:
    """Return why dave cannot list his checkpoints; "" if he can."""
    try:
        accounts.client(accounts.dave).checkpoints(number)
    except PlaceUnavailable as error:
        return error.message
    return ""


@pytest.mark.long
def test_a_user_who_stops_every_agent_holds_up_himself_and_nobody_else(accounts, trained):
    mine = accounts.submit(accounts.dave, epochs=20, pause=0.05)
    accounts.reached(accounts.dave, mine, 2)
    user = accounts.user(accounts.dave)
    stopper = subprocess.Popen(
        [accounts.python, "-c", STOPS_ITS_AGENTS], user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/"
    )
    try:
        other = accounts.submit(accounts.leslie, epochs=4)
        assert accounts.ended(accounts.leslie, other).state == "completed"
        until(lambda: "cannot be reached just now" in refused(accounts, mine), "an agent is stopped in time")
    finally:
        stopper.kill()
        stopper.wait()
    for process in accounts.processes(accounts.dave, "kernel_backend.agent"):
        process.send_signal(signal.SIGCONT)
    overview = accounts.ended(accounts.dave, mine)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 1)


def test_a_restarted_service_finds_the_gangs_of_all_users(accounts, trained):
    hurry = accounts.base / "hurry-restarted"
    lasts = {"epochs": 12, "pause": 0.5, "hurry": str(hurry)}
    numbers = {name: accounts.submit(name, LASTING, **lasts) for name in (accounts.leslie, accounts.dave)}
    for name, number in numbers.items():
        accounts.reached(name, number, 3)
    accounts.kill("service")
    accounts.start_service()
    hurry.touch()
    for name, number in numbers.items():
        overview = accounts.ended(name, number)
        assert (overview.state, overview.trials[0].attempt) == ("completed", 1)
        assert accounts.processes(name, "kernel_backend.runner") == []
    until(lambda: not list((accounts.home / "gangs").iterdir()), "no gang is noted any more")


def test_the_engine_believes_no_agent_about_gangs_of_others(accounts, agents, tmp_path):
    """Dave has created a folder by hand so that his agent lists a gang of leslie's."""
    folder = accounts.area(accounts.dave) / "attempts" / "77.1-1"
    accounts.as_user(accounts.dave, "sh", "-c", f"mkdir -p {folder} && touch {folder}/listed")
    engine = UnixUserEngine(
        agents, lambda number: accounts.leslie if number == 77 else accounts.dave, GangNotes(tmp_path)
    )
    (tmp_path / "78.1-1").touch()

    async def go():
        return [status.key for status in await engine.statuses()]

    assert asyncio.run(go()) == [AttemptId(78, 1, 1)]
    shutil.rmtree(folder)
