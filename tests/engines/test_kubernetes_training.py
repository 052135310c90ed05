"""Test that a service trains on a pool of Kubernetes without a shared disk, over a stub of the API server."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import fsspec
import pytest

from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.client import Client
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import read_pool
from kernel_backend.model.search.records import Search
from tests.support.bad_network import BadNetwork, distant_store
from tests.support.kubernetes_stub import Stub, node, other_pod
from tests.support.process_kubelet import ProcessKubelet
from tests.support.remote_samples import FUNCTIONS, SAMPLES, asked, put_samples
from tests.support.shared_site import SharedSite
from tests.support.submitted import submit_program
from tests.support.world import World, until

POOL = {"engine": "kubernetes", "image": "test", "gpus": False, "python": sys.executable}


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stub]:
    """Provide an API server with two nodes of one CPU each."""
    stub = Stub(tmp_path_factory.mktemp("site"))
    stub.cluster.nodes = [node("n1", cpus=1), node("n2", cpus=1)]
    with stub.serving():
        yield stub


@pytest.fixture(scope="module")
def kubelet(stub: Stub) -> ProcessKubelet:
    """Provide the kubelet that runs the pods of both nodes."""
    kubelet = ProcessKubelet(stub.cluster, stub.config.parent)
    stub.begin(kubelet.run)
    return kubelet


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[str, BadNetwork]]:
    """Provide the URL of a bucket, and the network on the way to it."""
    with distant_store() as found:
        yield found


@pytest.fixture(scope="module")
def site(stub: Stub, kubelet: ProcessKubelet, store: tuple[str, BadNetwork]) -> Iterator[tuple[World, Stub, str]]:
    """Provide a service, its API server, and a bucket for all checkpoints."""
    folder, (bucket, _) = stub.config.parent, store
    world = World(folder / "home", shared_forkserver=True)
    world.environment |= {"KUBECONFIG": str(stub.config)}
    pools = {"cloud": {**POOL, "scratch": str(folder / "scratch"), "cache": "/nvme/daylight"}}
    (folder / "config.py").write_text(f"c.Daylight.pools = {pools!r}\nc.Daylight.checkpoints = {bucket!r}\n")
    world.settings = (f"--config={folder / 'config.py'}",)
    world.serve()
    yield world, stub, bucket
    world.close()


def check(world: World, pool: str = "cloud", data: str = "") -> dict[str, PoolFinding]:
    found = Client.connect(start=False, home=world.home).check_pool(pool, data=data).findings
    return {each.name: each for each in found}


def test_a_check_probes_two_pods_and_leaves_nothing_in_the_namespace(site):
    world, stub, bucket = site
    fsspec.filesystem("s3").pipe(f"{bucket}/probe/a.npy", b"1234")
    found = check(world, data=f"{bucket}/probe")
    assert all(each.ok for each in found.values()), found
    assert list(found) == [
        *("engine", "rights", "nodes", "other pods", "gangs", "versions", "home", "service"),
        *("clocks", "checkpoints", "devices", "data", "network", "start"),
    ]
    for name in ("n1", "n2"):
        assert f"{name}: {bucket}/probe: 1 object, 4 B; they arrive at " in found["data"].says
    assert found["versions"].says.endswith("here and on n1, n2")
    assert found["checkpoints"].says == f"{bucket}: written and read by n1, n2"
    assert re.match(r"all-reduce of 64 MB by gloo: \d+\.\d+ GB/s", found["network"].says)
    until(lambda: not stub.pods(), "the pods of the check are deleted")


def test_a_check_says_why_pods_do_not_answer(site):
    world, stub, _ = site
    stub.do(lambda cluster: cluster.quota.update(pods=1))
    probe = check(world)["probe"]
    assert (probe.ok, "quota gpus of the namespace" in probe.says) == (False, True), probe
    stub.do(lambda cluster: cluster.quota.clear())
    client = Client.connect(start=False, home=world.home)
    client.set_pool("broken", read_pool("broken", {**POOL, "python": "/nowhere/python"}).settings)
    probe = check(world, "broken")["probe"]
    assert (probe.ok, probe.todo) == (False, "change `image` or `python` of the pool"), probe
    until(lambda: not stub.pods(), "the pods of the check are deleted")


def test_two_pods_train_over_the_service_and_leave_nothing_but_the_data_of_a_store_on_their_nodes(
    site, store, tmp_path
):
    world, stub, bucket = site
    data = put_samples(tmp_path / "samples", f"{bucket}/train")
    line = ["train.py", "--slots=2", "--epochs=2", "--batch-size=8", "--backend=torch"]
    store[1].requests.clear()
    number = submit_program(world, tmp_path, FUNCTIONS, *line, "--pool=cloud", f"--data=train={bucket}/train")
    overview = world.ended(number, 200.0)
    assert overview.experiment.state == "completed", overview
    assert asked(store[1].requests, nodes=2) == (1, SAMPLES, True)
    until(lambda: not stub.pods(), "the objects of the gang are deleted")
    alone = submit_program(world, tmp_path, FUNCTIONS, *line, f"train={data}")
    assert world.ended(alone).state == "completed"
    one, other = (open_storage(f"{bucket}/{each}/1").committed()[-1].parts for each in (number, alone))
    assert [part.digest for part in one] == [part.digest for part in other]
    found = [stub.config.parent / node / "nvme/daylight/objects" for node in ("n1", "n2")]
    assert [len(list(each.glob("*/*"))) for each in found] == [SAMPLES, SAMPLES]
    line[1] = "--slots=1"
    again = submit_program(world, tmp_path, FUNCTIONS, *line, "--pool=cloud", f"--data=train={bucket}/train")
    (pod,) = until(stub.pods, "the pod of another training of the same data")
    near = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [each["preference"]["matchFields"][0]["values"] for each in near] == [["n1"], ["n2"]]
    Client.connect(start=False, home=world.home).act(again, "stop")
    world.state(again, "stopped")
    until(lambda: not stub.pods(), "the objects of the gang are deleted")


def kept(world: World) -> list[HeldAllocation]:
    """Return the allocations that searches keep or wait for."""
    pools = Client.connect(start=False, home=world.home).pools()
    return [each for pool in pools for each in pool.allocations]


def test_trials_share_a_pod_that_a_new_service_finds_again_and_go_on_in_another_where_it_is_killed(site, kubelet):
    world, stub, _ = site
    options = {"slots": 1, "epochs": 2, "checkpoint_every": {"steps": 2}, "space": "dropout=0.1,0.2"}
    client = Client.connect(start=False, home=world.home)
    until(lambda: all(each.nodes for each in client.pools() if each.name == "cloud"), "its nodes are known")
    number = world.lasting(pool="cloud", search=Search(method="grid", parallel=1), **options)
    world.checkpointed(number)
    (first,), (pod,) = kept(world), stub.pods()
    assert (first.running, first.gang, first.slots, first.closing) == (True, f"{number}.1-1", 1, "")
    assert pod["metadata"]["name"] == f"{first.job}-0"
    world.kill_service()
    world.serve()
    stub.do(lambda cluster: kubelet.kill(pod))
    world.hurry(number, attempt=2)
    overview = world.ended(number, 200.0)
    assert overview.experiment.state == "completed", overview
    assert [(trial.attempt, trial.failures) for trial in overview.trials] == [(2, 0), (1, 0)]
    until(lambda: not stub.pods() and not kept(world), "the allocation is given back")
    events = stub.do(
        lambda cluster: [each["object"]["metadata"]["name"] for _, of, each in cluster.history if of == "pods"]
    )
    mine = {name for name in events if name.startswith((f"daylight-{number}-", f"daylight-kept-{number}-"))}
    assert len(mine) == 2, mine  # both trials ran in the second one, the first trial in both


@pytest.fixture
def shared(site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSite]:
    """Another service on the same cluster, whose elastic trainings change quickly, and whose pods see its home."""
    _, stub, _ = site
    home = tmp_path_factory.mktemp("shared") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(stub.config))
        volumes = [{"claim": "home", "at": str(home)}]
        made = SharedSite(home, **POOL, shared=True, volumes=volumes)
        yield made
        made.close()


@pytest.mark.long
def test_an_elastic_gang_gives_a_node_to_anothers_pod_and_takes_it_again(site, shared):
    _, stub, _ = site
    options = {"epochs": 20, "checkpoint_every": {"steps": 4}, "logical_workers": 2}
    number = shared.lasting(pool="cluster", slots=2, least_slots=1, **options)
    shared.trains(number, attempt=1, slots=2)
    stub.do(lambda cluster: cluster.create("pods", other_pod("web", cpu=1)))
    shrunk = shared.trains(number, attempt=2, slots=1)
    assert any("attempt 1 shrinks: pod jhub/web waits for slots" in each for each in shrunk.warnings), shrunk.warnings
    stub.do(lambda cluster: cluster.put("pods", cluster.get("pods", "web"), "DELETED"))
    grown = shared.trains(number, attempt=3, slots=2)
    assert any("attempt 2 grows: nobody waits for 1 more slot" in each for each in grown.warnings), grown.warnings
    shared.hurry(number, attempt=3)
    ended = shared.ended(number)
    assert (ended.state, ended.trials[0].failures) == ("completed", 0)
    until(lambda: not stub.pods(), "the objects of the gang are deleted")
