"""Test a hub whose notebook servers are jobs of a real Slurm (batchspawner), next to gangs that users submit there."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.client import Client
from kernel_backend.model.views.overview import Overview
from tests.accounts.unix import Accounts, needed
from tests.hub.hub import OURS, PASSWORD, PROXY, Hub, Notebook
from tests.support.slurm import Slurm, slurm
from tests.support.world import DEFINITION, LASTING

pytestmark = pytest.mark.distributed

EXAMPLE = Path(__file__).parents[2] / "examples" / "jupyterhub" / "batchspawner_config.py"
CONFIG = """
load_subconfig({example!r})
c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = {password!r}
c.Authenticator.allowed_users = {users!r}
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_port = {hub}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = [{proxy_command!r}]
c.ConfigurableHTTPProxy.pid_file = "proxy.pid"
c.JupyterHub.db_url = "sqlite:///hub.sqlite"
c.JupyterHub.cookie_secret = bytes(32)
c.JupyterHub.services.append({{"name": "tests", "api_token": {token!r}}})
scopes = ["admin:users", "admin:servers", "tokens", "access:servers", "access:services"]
c.JupyterHub.load_roles.append({{"name": "tests", "services": ["tests"], "scopes": scopes}})
c.SlurmSpawner.state_exechost_exp = "127.0.0.1"  # all nodes are this machine, and their names are no hosts
command = next(each for each in c.JupyterHub.services if each["name"] == "daylight")["command"]
command[command.index("--spawn-helper=/run/daylight/spawn.sock")] = {helper!r}
"""
# What the wrappers of an installed Daylight would be, for an interpreter that every account can run.
PROGRAMS = {
    "batchspawner-singleuser": "from batchspawner.singleuser import main",
    "jupyterhub-singleuser": "from jupyterhub.singleuser import main",
}
# A rank tells the variables of Slurm that it sees.
TOLD = """
import json, os
print(json.dumps({name: os.environ[name] for name in os.environ if name.startswith("SLURM")}), flush=True)
"""
CELL = f"%%dlsubmit --pool gpu --slots 2 --epochs 2{TOLD}{DEFINITION.lstrip()}"


class BatchHub(Hub):
    """Hub that runs as root with an interpreter that all accounts can run, and the configuration in examples/."""

    def __init__(self, folder: Path, accounts: Accounts, site: Slurm) -> None:
        super().__init__(folder)
        self._accounts, self._site = accounts, site

    def start(self) -> BatchHub:
        """Start the hub, and wait until it and the service answer."""
        programs, pools = self.folder / "bin", self.folder / "daylight.py"
        programs.mkdir(parents=True)
        for name, line in PROGRAMS.items():
            (programs / name).write_text(f"#!{self._accounts.python} -P\n{line}\n\nmain()\n")
            (programs / name).chmod(0o755)
        pools.write_text('c.Daylight.pools = {"gpu": {"engine": "slurm", "partition": "main"}}\n')
        text = CONFIG.format(
            example=str(EXAMPLE),
            password=PASSWORD,
            users={self._accounts.leslie, self._accounts.dave},
            proxy_command=str(PROXY),
            token=OURS,
            helper=f"--spawn-helper={self._accounts.helper_socket}",
            **self._ports,
        )
        (self.folder / "config.py").write_text(text)
        found = {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": self._accounts.environment["PYTHONPATH"]}
        environment = self._accounts.environment | {
            "HOME": str(self.folder),
            "PATH": f"{programs}:{self._site.environment['PATH']}",
            "SLURM_CONF": str(self._site.conf),
            "DAYLIGHT_HUB_ADDRESS": "127.0.0.1",
            "DAYLIGHT_HUB_PARTITION": "small",
            "DAYLIGHT_HUB_RUNTIME": "30",
            "DAYLIGHT_HUB_PROLOGUE": "".join(f"export {name}='{text}'\n" for name, text in found.items()),
            "DAYLIGHT_HUB_HOME": str(self._accounts.home),
            "DAYLIGHT_SERVICE_URL": self._listens,
            "DAYLIGHT_ACCOUNT": self._accounts.service_user,
            "DAYLIGHT_CONFIG": str(pools),
            "CONFIGPROXY_AUTH_TOKEN": "the-token-of-the-proxy",
        }
        with (self.folder / "hub.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._accounts.python, "-P", "-m", "jupyterhub", "-f", "config.py"],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.until(lambda: self._answers(f"{self.url}/hub/api/", 200), "the hub answers")
        self.until(lambda: self._answers(f"{self.service}/api/health", 401), "the service answers")
        return self

    def client(self, user: str) -> Client:
        """Return a client with the token of this user."""
        if user not in self._clients:
            uid = self._accounts.user(self._accounts.service_user).pw_uid
            self._clients[user] = Client.at(self.service, self.token(user), patience=20, user=uid)
        return self._clients[user]


@pytest.fixture(scope="module")
def site() -> Iterator[Slurm]:
    """Provide a Slurm of three nodes with four CPUs each."""
    with slurm(cpus=4) as running:
        yield running


@pytest.fixture(scope="module")
def accounts(site: Slurm) -> Iterator[Accounts]:
    """Provide users of the cluster and the spawn helper; the hub starts the service."""
    made = Accounts(needed())
    made.environment["SLURM_CONF"] = str(site.conf)
    try:
        made.start_helper()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def hub(accounts: Accounts, site: Slurm) -> Iterator[BatchHub]:
    made = BatchHub(accounts.base / "hub", accounts, site)
    try:
        yield made.start()
    finally:
        made.close()


def jobs(site: Slurm, user: str) -> dict[str, str]:
    """Return the ids of a user's jobs in Slurm by name, including ended ones; of several the newest."""
    listed = site.run("squeue", "-h", "-u", user, "-t", "all", "-S", "i", "-o", "%j %i").split()
    return dict(zip(listed[::2], listed[1::2], strict=True))


def submitted(server: Notebook, cell: str) -> int:
    """Return the number of the experiment that a cell submits."""
    said = server.run("%load_ext daylight") + server.run(cell)
    found = re.search(r"#(\d+)", said)
    assert found is not None, said
    return int(found[1])


def ended(hub: BatchHub, user: str, number: int) -> Overview:
    """Wait until an experiment has ended, or is paused."""
    client = hub.client(user)
    done = ("completed", "failed", "paused")
    return hub.until(lambda: (o := client.experiment(number)).state in done and o, f"#{number} ends")


def test_a_cell_in_a_server_that_is_a_job_trains_as_another_job_of_the_same_user(hub, accounts, site):
    user = accounts.leslie
    server = hub.notebook(user)
    own = jobs(site, user)["spawner-jupyterhub"]
    said = server.run("import os, getpass; print(getpass.getuser(), os.environ['SLURM_JOB_ID'])")
    assert said.split() == [user, own]
    number = submitted(server, CELL)
    overview = ended(hub, user, number)
    assert (overview.state, overview.experiment.owner) == ("completed", user), overview
    seen = json.loads(hub.client(user).logs(number, trial=1, rank=0).text.splitlines()[0])
    assert set(seen) <= {"SLURMD_NODENAME", "SLURM_CLUSTER_NAME", "SLURM_CONF", "SLURM_JOB_ID"}
    assert seen["SLURM_JOB_ID"] == jobs(site, user)[f"daylight-{number}.1-1"] != own
    server.close()


def test_a_server_that_ends_takes_no_training_along(hub, accounts, site):
    """Slurm kills all processes of a job that ends; a gang is a job of its own, not a process of the server's job."""
    user, hurry = accounts.leslie, accounts.base / "hurry-batchspawner"
    server = hub.notebook(user)  # that of the test above, if it ran before
    lasting = f"%%dlsubmit --pool gpu --slots 1 --epochs 60 pause=0.5 hurry='{hurry}'\n{LASTING}"
    number = submitted(server, lasting)
    client = hub.client(user)
    hub.until(lambda: client.experiment(number).trials[0].step > 0, "it trains")
    hub.api("DELETE", f"users/{user}/server")
    site.wait(
        lambda: "spawner-jupyterhub" not in site.run("squeue", "-h", "-u", user, "-t", "R", "-o", "%j"), "its job ends"
    )
    assert f"daylight-{number}.1-1" in site.run("squeue", "-h", "-u", user, "-t", "R", "-o", "%j")
    hurry.touch()
    overview = ended(hub, user, number)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 1)
