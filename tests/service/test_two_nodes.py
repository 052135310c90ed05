"""Test gangs over two nodes of a real Slurm: bits equal one machine's whatever is killed, and waits are explained."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import DaylightError
from kernel_backend.model.cluster.pools import PoolSettings
from tests.support.bad_network import BadNetwork, distant_store
from tests.support.remote_samples import FUNCTIONS, SAMPLES, asked, put_samples
from tests.support.shared_site import SharedSite
from tests.support.slurm import NODES, Slurm, slurm
from tests.support.submitted import submit_program
from tests.support.world import DEFINITION, World, until

pytestmark = pytest.mark.distributed

OPTIONS = {"epochs": 4, "checkpoint_every": {"steps": 4}}


@pytest.fixture(scope="module")
def site() -> Iterator[Slurm]:
    """Provide a Slurm of three nodes with one CPU each, so that two slots are on two nodes."""
    with slurm(cpus=1) as running:
        yield running


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[str, BadNetwork]]:
    """Provide the URL of a bucket, and the network on the way to it."""
    with distant_store() as found:
        yield found


@pytest.fixture(scope="module")
def two(site: Slurm, store: tuple[str, BadNetwork], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Provide a service with the pool `cluster` in addition to its own machine."""
    folder = tmp_path_factory.mktemp("nodes")
    made = World(folder / "home", shared_forkserver=True)
    made.environment |= site.environment | {"DAYLIGHT_HOME": str(made.home), "DAYLIGHT_SLOTS": "2"}
    pools = {"cluster": {"engine": "slurm", "partition": "main"}}
    (folder / "config.py").write_text(f"c.Daylight.pools = {pools!r}\n")
    made.settings = (f"--config={folder / 'config.py'}",)
    made.serve()
    yield made
    made.close()


@pytest.fixture(scope="module")
def quiet(two: World) -> dict[str, str]:
    """Provide the weights of an undisturbed run on two slots of this machine."""
    number = two.submit(**OPTIONS).experiment.number
    assert two.ended(number).state == "completed"
    return two.weights(number)


@pytest.fixture
def warm(site: Slurm) -> Iterator[None]:
    """Let all gangs on a node share a forkserver."""
    with site.lasting_forkservers():
        yield


def names(world: World, number: int) -> list[str]:
    """Return the nodes of an experiment's newest attempt."""
    return [node.name for node in world.overview(number).attempts[-1].nodes]


def test_two_nodes_of_one_slot_have_the_bits_of_two_slots_of_one_node(two, quiet):
    number = two.submit(pool="cluster", backend="torch", **OPTIONS).experiment.number
    overview = two.ended(number)
    assert (overview.state, overview.attempts[-1].backend) == ("completed", "torch"), overview
    assert len(set(names(two, number))) == 2
    assert two.weights(number) == quiet
    logs = [log.read_text() for log in (two.home / "attempts" / f"{number}.1-1").glob("launcher*.log")]
    assert logs
    assert not any("start cold" in log for log in logs), logs


@pytest.mark.usefixtures("warm")
@pytest.mark.long
def test_a_restarted_service_adopts_a_gang_on_two_nodes(two, quiet):
    number = two.lasting(pool="cluster", backend="horovod", **OPTIONS)
    two.checkpointed(number)
    two.kill_service()
    two.serve()
    two.hurry(number)
    overview = two.ended(number)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 1)
    assert overview.attempts[-1].backend == "horovod"
    assert two.weights(number) == quiet


@pytest.mark.usefixtures("warm")
@pytest.mark.long
def test_a_rank_killed_on_the_other_node_and_a_pause_cost_no_bit(two, quiet):
    number = two.lasting(pool="cluster", **OPTIONS)
    two.checkpointed(number)
    two.ranks()[1].kill()
    until(lambda: two.overview(number).trials[0].attempt == 2 and two.ranks(), "the second attempt")
    client = Client.connect(start=False, home=two.home)
    client.act(number, "pause")
    two.state(number, "paused")
    client.act(number, "resume")
    two.hurry(number, attempt=3)
    overview = two.ended(number)
    assert (overview.state, overview.attempts[0].failure.rank) == ("completed", 1)
    assert two.weights(number) == quiet


@pytest.mark.usefixtures("warm")
def test_trials_on_two_nodes_with_a_shared_home_fetch_each_object_once_to_each_node(two, site, store, tmp_path):
    url, network = store
    data = put_samples(tmp_path / "samples", f"{url}/train")
    for node in NODES:  # which are one machine here
        site.set_on(node, DAYLIGHT_CACHE=str(tmp_path / node))
    line = ["train.py", "--slots=2", "--epochs=2", "--batch-size=8", "--backend=torch"]
    search = ["--search=grid", "--parallel=1", "lr=0.1,0.2", "--pool=cluster"]
    source = FUNCTIONS + "\ndef validation_data(train):\n    return train_data(train)\n"
    network.requests.clear()
    number = submit_program(two, tmp_path, source, *line, *search, f"--data=train={url}/train")
    overview = two.ended(number)
    for node in NODES:
        site.set_on(node)
    assert [(trial.state, trial.attempt) for trial in overview.trials] == [("completed", 1)] * 2, overview
    assert asked(network.requests, nodes=2, starts=2) == (1, SAMPLES, True)
    assert any(each.endswith("which have train") for each in overview.informational), overview.warnings
    alone = submit_program(two, tmp_path, source, *line, f"train={data}", "lr=0.1")
    assert two.ended(alone).state == "completed"
    assert two.weights(number) == two.weights(alone)


@pytest.mark.usefixtures("warm")
def test_a_wait_in_the_sites_queue_says_why_and_is_charged_nothing(two, site):
    other = site.run("sbatch", "--parsable", "--nodes=3", "--wrap=sleep 600", "--output=/dev/null").strip()
    site.wait(lambda: "RUNNING" in site.run("squeue", "-h", "-j", other, "-o", "%T"), "another's job runs")
    number = two.submit(pool="cluster", **OPTIONS).experiment.number
    waiting = until(lambda: (o := two.overview(number)).wait and "Slurm:" in o.wait.reason and o, "a reason")
    assert waiting.state == "queued"
    assert waiting.wait.reason.startswith("cluster: 1st of ours; Slurm: ")
    assert waiting.attempts[-1].granted_at is None
    second = two.submit(pool="cluster", slots=1, **OPTIONS).experiment.number
    until(lambda: (o := two.overview(second)).wait and "Slurm" in o.wait.reason and "2nd" in o.wait.reason, "2nd place")
    Client.connect(start=False, home=two.home).act(second, "stop")
    two.state(second, "stopped")
    site.run("scancel", other)
    ended = two.ended(number)
    assert ended.state == "completed"
    assert ended.attempts[-1].granted_at > ended.attempts[-1].created_at


def test_a_gang_that_the_pool_can_never_hold_is_refused_at_submit(two):
    with pytest.raises(DaylightError, match="4 slots requested; pool cluster has 3"):
        two.submit(pool="cluster", slots=4)


def test_what_slurm_refuses_pauses_the_experiment_with_slurms_sentence(two):
    client = Client.connect(start=False, home=two.home)
    client.set_pool("refusing", PoolSettings(engine="slurm", partition="small", extra=("--mem=999G",)))
    number = two.submit(pool="refusing", slots=1, epochs=1).experiment.number
    paused = two.state(number, "paused")
    assert any(warning.startswith("paused: Slurm: ") for warning in paused.warnings), paused.warnings
    assert paused.trials[0].attempt == 1
    client.act(number, "stop")
    two.state(number, "stopped")
    client.remove_pool("refusing")


def test_ranks_see_no_variables_of_the_job_step(two):
    told = 'import json, os\nprint(json.dumps(sorted(n for n in os.environ if n.startswith("SLURM"))), flush=True)\n'
    number = two.submit(told + DEFINITION.lstrip(), pool="cluster", slots=1).experiment.number
    two.ended(number)
    log = Client.connect(start=False, home=two.home).logs(number, trial=1, rank=0).text
    expected = ["SLURMD_NODENAME", "SLURM_CLUSTER_NAME", "SLURM_CONF", "SLURM_JOB_ID"]
    assert json.loads(log.splitlines()[0]) == expected, log


def test_the_doctor_finds_all_of_a_good_pool_green(two, site, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("DAYLIGHT_HOME", str(two.home))
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.npy").write_bytes(b"1234")
    code = main(["doctor", "--pool", "cluster", "--data", f"train=file://{tmp_path}/train"])
    told = capsys.readouterr().out
    assert code == 0, told
    checks = "engine user partition versions home service clocks checkpoints devices data host network start"
    assert [line.split()[1] for line in told.splitlines()[1:]] == checks.split(), told
    assert "all-reduce of 64 MB by gloo" in told
    assert f"n2: file://{tmp_path}/train: 1 object, 4 B; they arrive at " in told
    print(told)
    assert site.run("squeue", "-h", "-t", "PD,R", "-o", "%j") == ""
    assert list(two.home.glob("check-*")) == []


@pytest.fixture
def shared(site: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSite]:
    """Another service on the same Slurm, whose elastic trainings change quickly."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SLURM_CONF", "PATH"):
            patch.setenv(name, site.environment[name])
        patch.setenv("DAYLIGHT_SLOTS", "2")
        made = SharedSite(tmp_path_factory.mktemp("shared") / "home", engine="slurm", partition="main")
        yield made
        made.close()


@pytest.mark.long
@pytest.mark.usefixtures("warm")
def test_an_elastic_gang_gives_a_node_to_anothers_job_takes_it_again_and_keeps_its_bits(shared, site):
    options = {"epochs": 12, "checkpoint_every": {"steps": 2}, "logical_workers": 2}
    number = shared.lasting(pool="cluster", slots=2, least_slots=1, **options)
    shared.trains(number, attempt=1, slots=2)
    other = site.run("sbatch", "--parsable", "--nodes=2", "--wrap=sleep 600", "--output=/dev/null").strip()
    site.wait(lambda: "RUNNING" in site.run("squeue", "-h", "-j", other, "-o", "%T"), "the job of another runs")
    shrunk = shared.trains(number, attempt=2, slots=1)
    assert any("attempt 1 shrinks: job" in each and "waits for slots" in each for each in shrunk.warnings)
    site.run("scancel", other)
    grown = shared.trains(number, attempt=3, slots=2)
    assert any("attempt 2 grows: nobody waits for 1 more slot" in each for each in grown.warnings), grown.warnings
    shared.hurry(number, attempt=3)
    ended = shared.ended(number)
    assert (ended.state, ended.trials[0].failures) == ("completed", 0)
    alone = shared.submit(slots=2, **options).experiment.number
    assert shared.ended(alone).state == "completed"
    assert shared.weights(number) == shared.weights(alone)
