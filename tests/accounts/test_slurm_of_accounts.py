"""Test real Unix accounts on a real Slurm: each user's gangs are jobs of that user, which no other agent can touch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kernel_backend.errors import Conflict, DaylightError, Forbidden
from kernel_backend.model.cluster.pools import PoolSettings
from tests.accounts.unix import Accounts, needed
from tests.support.slurm import Slurm, slurm
from tests.support.world import LASTING, until

pytestmark = pytest.mark.distributed

AGENT, LAUNCHER = "kernel_backend.agent", "kernel_backend.launch"
ADMIN = "ada"  # of the hub, without an account


@pytest.fixture(scope="module")
def site() -> Iterator[Slurm]:
    """Provide a Slurm of three nodes with one CPU each, so that two slots are on two nodes."""
    with slurm(cpus=1) as running:
        yield running


@pytest.fixture(scope="module")
def accounts(site: Slurm) -> Iterator[Accounts]:
    """Provide accounts whose service has the pool `cluster`."""
    made = Accounts(needed(), admin=ADMIN, pools={"cluster": {"engine": "slurm", "partition": "main"}})
    made.environment["SLURM_CONF"] = str(site.conf)
    try:
        made.start()
        yield made
    finally:
        made.close()


def users(accounts: Accounts) -> tuple[str, str]:
    return accounts.leslie, accounts.dave


def jobs(site: Slurm, user: str, states: str = "PD,R,CG") -> list[str]:
    """Return the ids of a user's jobs in Slurm."""
    return site.run("squeue", "-h", "-u", user, "-t", states, "-o", "%i").split()


def ranks(accounts: Accounts, user: str) -> list[psutil.Process]:
    """Return a user's running ranks, from the records of their launchers."""
    written = [json.loads(path.read_bytes()) for path in accounts.area(user).glob("attempts/*/ranks*.json")]
    pids = {pid for each in written for pid in each.values()}
    return [process for process in accounts.processes(user) if process.pid in pids]


def lasting(accounts: Accounts, user: str, **options: object) -> tuple[int, Path]:
    """Submit a training to the pool that runs until a file exists."""
    hurry = accounts.base / f"hurry-{user}-{len(list(accounts.base.glob('hurry-*')))}"
    lasts = {"epochs": 60, "pause": 0.5, "hurry": str(hurry), "pool": "cluster"}
    return accounts.submit(user, LASTING, **lasts | options), hurry


def denied(accounts: Accounts, user: str, site: Slurm, *command: str) -> str:
    """Return the error message of a user's command."""
    done = accounts.as_user(user, "env", f"SLURM_CONF={site.conf}", *command)
    assert done.stdout == ""
    return done.stderr


@pytest.mark.long
def test_each_users_gangs_are_their_own_jobs_through_restarts_of_everything(accounts, site):
    """Two users train, one on two nodes; the service, all agents and the helper are killed in turn."""
    slots = {accounts.leslie: 2, accounts.dave: 1}
    begun = {user: lasting(accounts, user, slots=number) for user, number in slots.items()}
    found: dict[str, str] = {}
    for user, (number, _) in begun.items():
        accounts.reached(user, number, 2)
        (found[user],) = jobs(site, user, "R")
        about = site.run("scontrol", "show", "job", "-o", found[user])
        uid = accounts.user(user).pw_uid
        assert f"UserId={user}({uid})" in about
        assert str(accounts.area(user)) in about
        processes = ranks(accounts, user) + accounts.processes(user, LAUNCHER)
        assert len(ranks(accounts, user)) == slots[user], processes
        token = next(accounts.area(user).glob(f"attempts/{number}.*/token"))
        assert token.read_text() not in about + "".join(str(process.environ()) for process in processes)

    theirs, mine = found[accounts.leslie], found[accounts.dave]
    folder = next(accounts.area(accounts.leslie).glob(f"attempts/{begun[accounts.leslie][0]}.*"))
    for command in (
        ("scancel", theirs),
        ("scancel", "--signal=KILL", f"{theirs}.0"),
        ("scontrol", "write", "batch_script", theirs, "-"),
        ("scontrol", "update", f"jobid={theirs}", "timelimit=1"),
        ("cat", str(folder / "launcher.log")),
        ("cat", str(folder / "token")),
        ("ls", str(folder)),
    ):
        said = denied(accounts, accounts.dave, site, *command)
        assert re.search("denied|Access/permission|Invalid user id|Kill job error", said), (command, said)
    assert len(ranks(accounts, accounts.leslie)) == 2

    accounts.kill("service")
    accounts.start_service()
    for user in users(accounts):
        for process in accounts.processes(user, AGENT):
            process.kill()
    accounts.kill("helper")
    until(lambda: "the spawn helper does not answer" in accounts.log("service"), "an agent cannot be started")
    assert jobs(site, accounts.leslie, "R") == [theirs]
    assert jobs(site, accounts.dave, "R") == [mine]
    accounts.start_helper()
    for user, (number, hurry) in begun.items():
        hurry.touch()
        overview = accounts.ended(user, number)
        assert (overview.state, overview.trials[0].attempt, overview.trials[0].failures) == ("completed", 1, 0)
        assert len(overview.attempts[-1].nodes) == slots[user]
    site.wait(lambda: jobs(site, accounts.leslie) == jobs(site, accounts.dave) == [], "all jobs have ended")


def test_a_check_of_the_pool_runs_as_whoever_asks(accounts):
    check = accounts.client(accounts.dave).check_pool("cluster", python=accounts.python)
    assert {each.name for each in check.findings if not each.ok} <= {"versions", "host"}, check
    found = {each.name: each.says for each in check.findings}
    assert found["user"].startswith(f"{accounts.dave}, ")
    assert str(accounts.area(accounts.dave)) in found["home"]
    assert str(accounts.area(accounts.dave)) in found["checkpoints"]
    assert list(accounts.area(accounts.dave).glob("check-*")) == []
    with pytest.raises(Forbidden, match=f"nothing can run as {ADMIN} here"):
        accounts.client(ADMIN).check_pool("cluster", python=accounts.python)


def test_no_agent_is_started_for_users_without_gangs(accounts):
    accounts.kill("service")
    accounts.start_service()
    until(lambda: accounts.client(ADMIN).pools()[-1].slots == 3, "the service itself sees the pool's nodes")
    assert [each for user in users(accounts) for each in accounts.processes(user, AGENT)] == []


def test_a_stop_ends_ones_own_job_alone_and_then_an_admin_removes_the_pool(accounts, site):
    settings = PoolSettings(engine="slurm", partition="small")
    with pytest.raises(Forbidden):
        accounts.client(accounts.dave).set_pool("second", settings)
    accounts.client(ADMIN).set_pool("second", settings)
    mine, _ = lasting(accounts, accounts.dave, pool="second", slots=1)
    accounts.reached(accounts.dave, mine, 1)
    theirs, hurry = lasting(accounts, accounts.leslie, slots=1)
    accounts.reached(accounts.leslie, theirs, 1)
    with pytest.raises(Conflict, match=f"pool second is used by experiments that have not ended: #{mine}"):
        accounts.client(ADMIN).remove_pool("second")
    with pytest.raises(DaylightError) as raised:
        accounts.client(accounts.dave).act(theirs, "stop")
    assert raised.value.http_status in (403, 404)
    accounts.client(accounts.dave).act(mine, "stop")
    assert accounts.ended(accounts.dave, mine).state == "stopped"
    until(lambda: _removed(accounts, "second"), "no gang of it is left")
    assert jobs(site, accounts.dave) == ranks(accounts, accounts.dave) == []
    assert "second" not in [each.name for each in accounts.client(ADMIN).pools()]
    assert accounts.client(accounts.dave).logs(mine, rank=0).ended
    assert len(jobs(site, accounts.leslie, "R")) == 1
    hurry.touch()
    assert accounts.ended(accounts.leslie, theirs).state == "completed"


def test_slurms_files_are_nobody_elses_to_read(accounts):
    for user in users(accounts):
        folders = list(accounts.area(user).glob("attempts/*/slurm.json"))
        assert folders, user
        for path in (each for folder in folders for each in (folder.parent, *folder.parent.iterdir())):
            about = path.lstat()
            assert (about.st_uid, about.st_mode & 0o077) == (accounts.user(user).pw_uid, 0), path


def _removed(accounts: Accounts, name: str) -> bool:
    try:
        accounts.client(ADMIN).remove_pool(name)
    except Conflict:
        return False
    return True
