"""Test gangs on nodes of a real Slurm that do not see the service's home: files go through the service."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from jupyter_ext.job.job import Job
from kernel_backend.client import Client
from kernel_backend.snapshots.archive import digest
from tests.support.remote_samples import FUNCTIONS, SAMPLES, asked, put_samples
from tests.support.slurm import NODES
from tests.support.staged_site import OPTIONS, POOL, Site, staged_site
from tests.support.submitted import submit_program
from tests.support.world import LASTING, until

pytestmark = pytest.mark.distributed

# It keeps a file of several pieces when it begins, and one at each validation.
KEEPING = LASTING.replace(
    "def model(width=16, dropout=0.2):\n",
    "def model(run, width=16, dropout=0.2):\n"
    "    (run.folder / 'net.bin').write_bytes(bytes(range(256)) * 10_000)\n"
    "    run.artifact('net', run.folder / 'net.bin')\n",
).replace(
    "def metrics(output, target):  return {",
    "def metrics(run, output, target):\n"
    "    (run.folder / 'table.csv').write_text('1,2')\n"
    "    run.artifact('table', run.folder / 'table.csv')\n"
    "    return {",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with staged_site(tmp_path_factory.mktemp("site"), {"nowhere": {**POOL, "scratch": "/proc/daylight"}}) as made:
        yield made


@pytest.fixture(scope="module")
def local(site: Site) -> int:
    """Provide the number of a run on two slots of the service's machine."""
    number = site.world.submit(**OPTIONS).experiment.number
    site.trained(number)
    return number


@pytest.fixture(scope="module")
def quiet(site: Site, local: int) -> dict[str, str]:
    """Provide the weights of the local run."""
    return site.weights(local)


@pytest.fixture
def warm(site: Site) -> Iterator[None]:
    """Let all gangs on a node share a forkserver."""
    with site.slurm.lasting_forkservers():
        yield


@pytest.mark.parametrize("backend", ["torch", pytest.param("horovod", marks=pytest.mark.long)])
def test_two_nodes_that_see_no_home_have_the_bits_of_two_slots_of_one_node(site, quiet, backend):
    number = site.world.submit(pool="cloud", backend=backend, **OPTIONS).experiment.number
    overview = site.trained(number)
    assert overview.attempts[-1].backend == backend
    assert len({node.name for node in overview.attempts[-1].nodes}) == 2
    assert site.weights(number) == quiet
    until(lambda: site.left("attempts/*") == [], "the nodes' folders of the attempt are gone")


@pytest.mark.usefixtures("warm")
def test_each_node_fetches_the_objects_that_a_training_reads_into_its_own_disk(site, tmp_path):
    data = put_samples(tmp_path / "samples", f"{site.bucket}/train")
    line = ["train.py", "--slots=2", "--epochs=2", "--batch-size=8", "--backend=torch"]
    site.network.requests.clear()
    number = submit_program(site.world, tmp_path, FUNCTIONS, *line, "--pool=cloud", f"--data=train={site.bucket}/train")
    overview = site.trained(number)
    assert len({node.name for node in overview.attempts[-1].nodes}) == 2
    assert asked(site.network.requests, nodes=2) == (1, SAMPLES, True)
    alone = submit_program(site.world, tmp_path, FUNCTIONS, *line, f"train={data}")
    site.trained(alone)
    assert site.weights(number) == site.weights(alone)
    disks = [site.slurm.on(node.name, site.cache / "inputs") for node in overview.attempts[-1].nodes]
    assert [len(list(each.glob("objects/*/*"))) for each in disks] == [SAMPLES, SAMPLES]


def copies_of_the_code(site: Site, number: int) -> list[Path]:
    """Return the copies of the code on the nodes of an experiment's newest attempt."""
    overview = site.world.overview(number)
    name = f"daylight/*/*/snapshots/{overview.experiment.snapshot}.zip"
    disks = [site.slurm.on(node.name, site.cache) for node in overview.attempts[-1].nodes]
    return [copy for disk in disks for copy in disk.glob(name)]


@pytest.fixture(scope="module")
def disturbed(site: Site) -> int:
    """Provide the number of a training on two nodes, of which a rank, the service and a launcher were killed."""
    with site.slurm.lasting_forkservers():
        return disturb(site)


def disturb(site: Site) -> int:
    number, hurry = site.lasting(KEEPING)
    site.world.checkpointed(number)
    os.kill(until(lambda: site.ranks(number, 1).get(1), "rank 1 is known"), signal.SIGKILL)
    until(lambda: len(site.ranks(number, 2)) == 2, "its second attempt runs")
    for each in copies_of_the_code(site, number):  # a bit of each is flipped
        data = bytearray(each.read_bytes())
        data[len(data) // 2] ^= 1
        each.write_bytes(data)
    site.world.kill_service()
    site.world.serve()
    before = site.world.overview(number).trials[0].step
    site.world.reached(number, before + 2)
    os.kill(site.launcher(number, 2), signal.SIGKILL)
    until(lambda: len(site.ranks(number, 3)) == 2, "its third attempt runs")
    hurry.touch()
    site.trained(number)
    return number


@pytest.mark.long
def test_killed_ranks_services_and_launchers_change_no_bit(site, quiet, disturbed):
    assert [attempt.outcome for attempt in site.world.overview(disturbed).attempts][-1] == "ok"
    assert site.weights(disturbed) == quiet


def test_a_copy_of_the_code_that_was_damaged_on_a_node_is_fetched_again(site, disturbed):
    copies = copies_of_the_code(site, disturbed)
    assert len(copies) == 2
    assert {digest(each.read_bytes()) for each in copies} == {site.world.overview(disturbed).experiment.snapshot}


def test_files_that_ranks_keep_come_to_the_service(site, disturbed):
    client = Client.connect(start=False, home=site.world.home)
    assert [(each.file, each.attempt) for each in client.artifacts(disturbed)] == [("net.bin", 3), ("table.csv", 3)]
    assert client.artifact(disturbed, 1, "net") == bytes(range(256)) * 10_000
    assert client.artifact(disturbed, 1, "table") == b"1,2"


def test_a_job_gives_its_model_back_from_the_object_store(site, local, disturbed):
    client = Client.connect(start=False, home=site.world.home)
    model, same = (Job(number, client).load().state_dict() for number in (disturbed, local))
    assert model.keys() == same.keys()
    assert all(torch.equal(value, same[name]) for name, value in model.items())
    assert model["1.num_batches_tracked"] == 32


@pytest.mark.usefixtures("warm")
def test_predictions_of_nodes_that_see_no_home_come_to_the_service(site, local):
    job = Job(local, Client.connect(start=False, home=site.world.home))
    there = job.predict("validation_data", slots=2, pool="cloud", batch_size=4, wait=False)
    found = there.wait().predictions()
    assert (found == job.predict("validation_data", batch_size=4)).all()
    assert len({node.name for node in there.overview.attempts[-1].nodes}) == 2
    assert sorted(each.name for each in there.artifacts())[0] == "predictions.json"


def test_a_full_disk_of_a_node_is_told_with_its_name_and_the_training_waits_for_room(site):
    fillers = [site.slurm.on(node, site.small) / "filler" for node in NODES]
    for each in fillers:
        each.write_bytes(b"x" * 2**20)
    number = site.world.submit(pool="small", slots=1, epochs=1, max_restarts=1).experiment.number
    overview = site.world.state(number, "paused")
    (told,) = [note for note in overview.warnings if note.startswith("paused: ")]
    assert told.startswith(f"paused: the disk of n1 is full ({site.small}")
    assert told.endswith(f": free space there, or choose another `scratch` for the pool, then resume #{number}")
    assert [attempt.outcome for attempt in overview.attempts] == ["failed", "failed"]
    for each in fillers:
        each.unlink()
    Client.connect(start=False, home=site.world.home).resume(number)
    site.trained(number)


@pytest.mark.usefixtures("warm")
def test_a_folder_that_cannot_be_written_is_told_with_the_nodes_name(site):
    number = site.world.submit(pool="nowhere", slots=1, max_restarts=0).experiment.number
    overview = site.world.state(number, "paused")
    (told,) = [note for note in overview.warnings if note.startswith("paused: ")]
    assert told.startswith("paused: n1 cannot write its files (/proc/daylight")
