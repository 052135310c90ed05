"""Test that a service trains on a pool of Kubernetes without a shared disk, over a stub of the API server."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.client import Client
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import read_pool
from tests.support.kubernetes_stub import Stub, node, other_pod
from tests.support.object_store import object_store
from tests.support.process_kubelet import ProcessKubelet
from tests.support.shared_site import SharedSite
from tests.support.world import World, until

POOL = {"engine": "kubernetes", "image": "test", "gpus": False, "python": sys.executable}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Stub, str]]:
    """Provide a service, an API server with two nodes of one CPU each, and a bucket for all checkpoints."""
    folder = tmp_path_factory.mktemp("site")
    stub = Stub(folder)
    stub.cluster.nodes = [node("n1", cpus=1), node("n2", cpus=1)]
    with object_store() as bucket, stub.serving():
        stub.begin(ProcessKubelet(stub.cluster, folder).run)
        world = World(folder / "home", shared_forkserver=True)
        world.environment |= {"KUBECONFIG": str(stub.config)}
        pools = {"cloud": {**POOL, "scratch": str(folder / "scratch")}}
        (folder / "config.py").write_text(f"c.Daylight.pools = {pools!r}\nc.Daylight.checkpoints = {bucket!r}\n")
        world.settings = (f"--config={folder / 'config.py'}",)
        world.serve()
        yield world, stub, bucket
        world.close()


def check(world: World, pool: str = "cloud") -> dict[str, PoolFinding]:
    found = Client.connect(start=False, home=world.home).check_pool(pool).findings
    return {each.name: each for each in found}


def test_a_check_probes_two_pods_and_leaves_nothing_in_the_namespace(site):
    world, stub, bucket = site
    found = check(world)
    assert all(each.ok for each in found.values()), found
    assert list(found) == [
        *("engine", "rights", "nodes", "other pods", "gangs", "versions", "home", "service"),
        *("clocks", "checkpoints", "devices", "network", "start"),
    ]
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


def test_two_pods_train_over_the_service_and_leave_nothing_in_the_namespace(site):
    world, stub, bucket = site
    number = world.submit(slots=2, epochs=2, pool="cloud").experiment.number
    overview = world.ended(number, 200.0)
    assert overview.experiment.state == "completed", overview
    assert open_storage(f"{bucket}/{number}/1").committed()
    until(lambda: not stub.pods(), "the objects of the gang are deleted")


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


@pytest.mark.timeout(600)
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
