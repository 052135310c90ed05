"""A service trains on a pool of Kubernetes whose pods do not see its files, over a stub of an API server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.client import Client
from tests.support.kubernetes_stub import Stub, node
from tests.support.object_store import object_store
from tests.support.process_kubelet import ProcessKubelet
from tests.support.world import World, until

POOL = {"engine": "kubernetes", "image": "test", "gpus": False, "python": sys.executable}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[World, Stub, str]]:
    """A service, the API server of two nodes with one CPU each, and the bucket of all checkpoints."""
    stub = Stub(tmp_path)
    stub.cluster.nodes = [node("n1", cpus=1), node("n2", cpus=1)]
    with object_store() as bucket, stub.serving():
        stub.begin(ProcessKubelet(stub.cluster, tmp_path).run)
        world = World(tmp_path / "home", shared_forkserver=True)
        world.environment |= {"KUBECONFIG": str(stub.config)}
        pools = {"cloud": {**POOL, "scratch": str(tmp_path / "scratch")}}
        (tmp_path / "config.py").write_text(f"c.Daylight.pools = {pools!r}\nc.Daylight.checkpoints = {bucket!r}\n")
        world.settings = (f"--config={tmp_path / 'config.py'}",)
        world.serve()
        yield world, stub, bucket
        world.close()


def test_two_pods_train_over_the_service_and_leave_nothing_in_the_namespace(site):
    world, stub, bucket = site
    world, stub, bucket = site
    found = Client.connect(start=False, home=world.home).check_pool("cloud")
    assert [(each.name, each.ok) for each in found.findings] == [
        ("engine", True),
        ("rights", True),
        ("nodes", True),
        ("files", True),
    ]
    number = world.submit(slots=2, epochs=2, pool="cloud").experiment.number
    overview = world.ended(number, 200.0)
    assert overview.experiment.state == "completed", overview
    assert open_storage(f"{bucket}/{number}/1").committed()
    until(lambda: not stub.pods(), "the objects of the gang are deleted")
