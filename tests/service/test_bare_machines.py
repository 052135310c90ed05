"""Test that two bare machines become a Slurm cluster by `daylight cluster`, and train together, also after a reboot."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.checkpoints.directory import Directory
from kernel_backend.launch.folder import AttemptFolder
from tests.support.machines import BareMachine, two_machines
from tests.support.remote_samples import FUNCTIONS, SAMPLES, asked, make_samples
from tests.support.slurm import LASTING
from tests.support.world import DEFINITION, until

pytestmark = pytest.mark.distributed

MOST_COMMANDS = 5
DAYLIGHT = (sys.executable, "-P", "-m", "kernel_backend.cli")
CACHE = ("--cache", "/var/lib/inputs")  # on each machine's own disk
HOW = ("--backend", "torch", "--again", "--wait", "--quiet")

# A home on the first machine's own disk, and an object store there that both machines reach.
STORE = "http://10.77.0.1:5005"
OWN = {
    "DAYLIGHT_HOME": "/var/lib/daylight",
    "AWS_ENDPOINT_URL": STORE,
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}
MAKE_BUCKET = """
import time
import fsspec
while True:
    try:
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("daylight")
        break
    except OSError:  # it does not listen yet
        time.sleep(0.2)
"""
PUT = "import fsspec; fsspec.filesystem('s3').put('/shared/samples/', 'daylight/train/', recursive=True)"
WEIGHTS = """
import json, sys
from kernel_backend.checkpoints.storage import open_storage
newest = open_storage(f"s3://daylight/{sys.argv[1]}/1").committed()[-1]
print(json.dumps({part.name: part.digest for part in newest.parts}))
"""
# Until they reboot, all gangs on a machine share a forkserver; from then on each has its own there.
SHARED_FORKSERVERS = {"PYTHONPATH": str(LASTING), "NODE_FORKSERVERS": "/var/lib"}
OWN_HOME = ("env", *(f"{name}={value}" for name, value in OWN.items()))


def train(program: str = "train.py") -> tuple[str, ...]:
    """Return the words that submit a program of the shared folder."""
    return ("submit", f"/shared/{program}", "--slots", "2", "--epochs", "2", "--batch-size", "8", "--threads", "1")


class Lab:
    """Two machines with a shared folder, and the commands that a user runs on them."""

    def __init__(self, machines: tuple[BareMachine, BareMachine], shared: Path) -> None:
        self.n1, self.n2 = machines
        self.shared = shared
        self.commands = 0

    def daylight(self, machine: BareMachine, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a `daylight` command on a machine."""
        self.commands += 1
        return machine.run(*DAYLIGHT, *words, check=check)

    def train(self, *words: str, program: str = "train.py") -> str:
        """Train on the first machine's service, and return the experiment's number."""
        return self.daylight(self.n1, *train(program), *HOW, *words).stdout.split()[0]

    def weights(self, number: str) -> dict[str, str]:
        """Return the digests of the newest checkpoint."""
        newest = Directory(self.shared / "daylight/checkpoints" / number / "1").committed()[-1]
        return {part.name: part.digest for part in newest.parts}

    def own(self, *command: str) -> str:
        """Run a command on the first machine with its own home, and return the output."""
        return self.n1.run(*OWN_HOME, *command).stdout

    def serve_own(self) -> None:
        """Start an object store on the first machine, and a service that stores its checkpoints there."""
        port = STORE.rpartition(":")[2]
        self._begin(sys.executable, "-m", "moto.server", "-H", self.n1.address, "-p", port)
        self.own(sys.executable, "-c", MAKE_BUCKET)
        announced = self.n1.path(OWN["DAYLIGHT_HOME"]) / "service.json"
        announced.unlink(missing_ok=True)
        (self.shared / "own.py").write_text('c.Daylight.checkpoints = "s3://daylight"\n')
        self._begin(*OWN_HOME, *DAYLIGHT, "serve", "--config", "/shared/own.py")
        until(announced.exists, "the service serves")  # other commands would start one without these settings

    def _begin(self, *command: str) -> None:
        self.n1.begin("sh", "-c", f"exec {shlex.join(command)} >>/tmp/own.log 2>&1")

    def train_own(self, *words: str, program: str = "train.py") -> dict[str, str]:
        """Train on both machines without a shared folder; return the digests of the newest checkpoint."""
        number = self.own(*DAYLIGHT, *train(program), *HOW, "--pool", "own", *words).split()[0]
        found: dict[str, str] = json.loads(self.own(sys.executable, "-c", WEIGHTS, number))
        return found

    def hosts(self, machine: BareMachine) -> list[str]:
        """Return the machines on which a job of two nodes runs."""
        return sorted(machine.run("srun", "-N2", "hostname").stdout.split())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("machines")
    shared = folder / "shared"
    shared.mkdir()
    (shared / "train.py").write_text(DEFINITION.lstrip())
    with two_machines(folder, {"n1": shared, "n2": shared}) as machines:
        for each in machines:
            each.environment |= {"DAYLIGHT_HOME": "/shared/daylight", "DAYLIGHT_SLOTS": "2"} | SHARED_FORKSERVERS
        yield Lab(machines, shared)


@pytest.fixture(scope="module")
def joined(lab: Lab) -> str:
    """Provide the output of `init`, after two commands have made the machines a cluster."""
    printed = lab.daylight(lab.n1, "cluster", "init").stdout
    lab.daylight(lab.n2, *command_to_join(printed))
    return printed


def command_to_join(printed: str) -> list[str]:
    found = re.search(r"^ +daylight (cluster join .+)$", printed, re.MULTILINE)
    assert found, printed
    return found[1].split()


def test_a_dry_run_prints_files_and_commands_and_changes_nothing(lab):
    told = lab.n1.run(*DAYLIGHT, "cluster", "init", "--dry-run").stderr
    assert "SlurmctldHost=n1(10.77.0.1)" in told
    assert "systemctl enable --now slurmctld" in told
    assert not lab.n1.path("/etc/slurm/slurm.conf").exists()


@pytest.fixture(scope="module")
def trained(lab: Lab, joined: str) -> str:
    """Provide the number of an experiment that two more commands have trained on both machines."""
    cpus = str(os.cpu_count())  # a slot is a whole machine
    lab.daylight(lab.n1, "pool", "add", "lab", "--engine", "slurm", "--cpus-per-slot", cpus)
    return lab.train("--pool", "lab")


@pytest.fixture(scope="module")
def quiet(lab: Lab) -> dict[str, str]:
    """Provide the weights of the same training on two slots of one machine."""
    return lab.weights(lab.train())


def test_bare_machines_train_together_after_at_most_five_commands(lab, trained):
    assert lab.commands <= MOST_COMMANDS
    shown = lab.n1.run(*DAYLIGHT, "show", trained, "--json").stdout
    assert '"n1"' in shown
    assert '"n2"' in shown


def test_two_bare_machines_have_the_bits_of_two_slots_of_one(lab, trained, quiet):
    assert lab.weights(trained) == quiet


def test_a_job_of_slurm_runs_on_both_from_either(lab, joined):
    assert lab.hosts(lab.n1) == lab.hosts(lab.n2) == ["n1", "n2"]


@pytest.fixture(scope="module")
def own(lab: Lab, joined: str) -> None:
    """Start a service with the pool `own`, whose machines share no folder with it."""
    lab.serve_own()
    cpus = str(os.cpu_count())
    lab.own(*DAYLIGHT, "pool", "add", "own", "--engine", "slurm", "--shared", "no", "--cpus-per-slot", cpus, *CACHE)


@pytest.mark.usefixtures("own")
def test_machines_that_share_no_folder_train_the_same_bits_by_an_object_store(lab, quiet):
    assert lab.train_own() == quiet
    assert not lab.n2.path(OWN["DAYLIGHT_HOME"]).exists()


@pytest.mark.usefixtures("own")
def test_each_machine_fetches_the_data_of_an_object_store_once(lab):
    make_samples(lab.shared / "samples")
    (lab.shared / "remote.py").write_text(FUNCTIONS)
    lab.own(sys.executable, "-c", PUT)
    log = lab.n1.path("/tmp/own.log")
    before = len(log.read_text())
    remote = lab.train_own("--data", "train=s3://daylight/train", program="remote.py")
    assert remote == lab.weights(lab.train("train=/shared/samples", program="remote.py"))
    requests = re.findall(r"^(\S+) .*\"(?:\x1b\[\d+m)*(\w+ \S+) HTTP", log.read_text()[before:], re.MULTILINE)
    assert {address for address, _ in requests} == {lab.n1.address, lab.n2.address}
    assert asked([each for _, each in requests], nodes=2) == (1, SAMPLES, True)


def test_status_shows_the_nodes_from_both_machines(lab, joined):
    for each in (lab.n1, lab.n2):
        told = lab.daylight(each, "cluster", "status").stdout
        assert re.search(r"^n1 +idle", told, re.MULTILINE), told
        assert re.search(r"^n2 +idle", told, re.MULTILINE), told


@pytest.fixture(scope="class")
def two_networks(lab: Lab, trained: str) -> Iterator[None]:
    """Add a second network with blocked ports to the machines, and a pool that requires it to the service."""
    for each, address in ((lab.n1, "10.78.0.1/24"), (lab.n2, "10.78.0.2/24")):
        each.run("ip", "address", "add", address, "dev", "ib0")
        each.run("ip", "link", "set", "ib0", "up")
    lab.n2.run("ip", "rule", "add", "to", "10.78.0.1", "ipproto", "tcp", "unreachable")
    cpus = str(os.cpu_count())
    lab.daylight(lab.n1, "pool", "add", "ib", "--engine", "slurm", "--cpus-per-slot", cpus, "--interface", "ib0")
    yield
    lab.daylight(lab.n1, "pool", "remove", "ib")
    for each in (lab.n1, lab.n2):
        each.run("ip", "link", "set", "ib0", "down")


@pytest.mark.usefixtures("two_networks")
class TestOnTwoNetworks:
    """The devices ib0 come first, and on their network n2 cannot connect to n1."""

    def test_ranks_take_the_one_that_works(self, lab, quiet):
        assert lab.weights(lab.train("--pool", "lab")) == quiet

    def test_blocked_ports_are_a_red_line_of_the_doctor(self, lab):
        told = lab.daylight(lab.n1, "doctor", "--pool", "ib", check=False).stdout
        red = [line for line in told.splitlines() if line.startswith("!!")]
        assert len(red) == 1, told
        assert red[0].split()[:3] == ["!!", "network", "n2"], told
        assert "cannot connect to n1: tried 10.78.0.1, port" in one_line(told)

    def test_a_gang_that_may_use_only_the_other_says_what_it_tries_and_then_fails(self, lab):
        begun = lab.daylight(lab.n1, *train(), "--again", "--pool", "ib", "--max-restarts", "0").stdout
        number = begun.split()[0].strip("#")
        attempt = AttemptFolder(lab.shared / "daylight/attempts" / f"{number}.1-1")

        def shows(text: str) -> bool:
            return text in one_line(lab.daylight(lab.n1, "show", number).stdout)

        tries = "the nodes look for an address by which they reach each other"
        until(lambda: tries in attempt.wait(), "its nodes are tried")
        until(lambda: shows(tries), "it is told")
        until(attempt.refusal, "its nodes give up")
        until(lambda: shows("failed: GangNotFormed"), "it fails")
        assert shows("n1 cannot be reached from n2: tried 10.78.0.1, port")


def one_line(told: str) -> str:
    """Return a command's output with its wrapped lines joined."""
    return " ".join(told.split())


def test_a_second_init_and_join_change_nothing(lab, joined):
    again = lab.daylight(lab.n1, "cluster", "init")
    assert "changed" not in again.stderr
    assert "changed" not in lab.daylight(lab.n2, *command_to_join(again.stdout)).stderr
    refused = lab.daylight(lab.n2, *command_to_join(joined), check=False)
    assert "is not the head that made this token" in refused.stderr


def test_the_key_of_munge_is_the_same_and_only_munge_reads_it(lab, joined):
    first, second = (each.path("/etc/munge/munge.key") for each in (lab.n1, lab.n2))
    assert first.read_bytes() == second.read_bytes()
    assert second.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in lab.n1.path("/run/daylight-cluster").iterdir()] == ["pid"]  # no secret is left


@pytest.mark.long
def test_after_a_reboot_of_both_their_start_brings_slurm_back(lab, joined):
    # Their kernel is this machine's, so that Slurm sees no reboot: a job whose end it has not saved stays for ever.
    until(lambda: not lab.n1.run("squeue", "--noheader").stdout, "no job is left")
    lab.n1.run("scontrol", "shutdown", "slurmctld")
    until(lambda: lab.n1.run("pgrep", "slurmctld", check=False).returncode, "the controller has saved its state")
    for each in (lab.n1, lab.n2):
        each.reboot()
        each.environment = {key: value for key, value in each.environment.items() if key not in SHARED_FORKSERVERS}
    down = lab.daylight(lab.n2, "cluster", "status", check=False)
    assert down.returncode == 1
    assert "slurmd does not run here: daylight cluster start" in down.stdout
    waiting = lab.n2.begin(*DAYLIGHT, "cluster", "start")  # its head is not there yet
    lab.daylight(lab.n1, "cluster", "start")
    _, said = waiting.communicate(timeout=600)
    assert waiting.returncode == 0, said
    assert lab.hosts(lab.n1) == ["n1", "n2"]
    assert lab.hosts(lab.n2) == ["n1", "n2"]


@pytest.mark.long
def test_after_the_reboot_they_train_the_same_bits(lab, trained, quiet):
    assert lab.weights(lab.train("--pool", "lab")) == quiet


@pytest.mark.long
def test_after_the_reboot_they_train_without_a_shared_folder_too(lab, joined, quiet):
    lab.serve_own()
    assert lab.train_own() == quiet


def test_a_foreign_slurm_conf_stays_until_forced_and_comes_back(lab, joined):
    conf = lab.n2.path("/etc/slurm/slurm.conf")
    lab.daylight(lab.n2, "cluster", "leave")
    lab.daylight(lab.n1, "cluster", "remove", "n2")
    conf.write_text("ClusterName=other\n")
    command = command_to_join(lab.daylight(lab.n1, "cluster", "invite").stdout)
    refused = lab.daylight(lab.n2, *command, check=False)
    assert refused.returncode == 2
    assert "belongs to another Slurm: --force" in refused.stderr
    lab.daylight(lab.n2, *command, "--force")
    assert not conf.exists()
    lab.daylight(lab.n2, "cluster", "leave")
    assert conf.read_text() == "ClusterName=other\n"
