"""Test that slots held by other pods are counted at once, and that gangs leave nodes that will shut down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.engines.base import CheckContext
from kernel_backend.engines.kubernetes import api, events, status
from kernel_backend.engines.kubernetes.cluster import nodes
from kernel_backend.engines.kubernetes.engine import KubernetesEngine
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.states import Outcome
from tests.engines.contract import ended, specifications, until
from tests.engines.contract import status as status_of
from tests.engines.kubernetes_gangs import sleeping_engine
from tests.support.kubernetes_stub import Stub, node, notebook_pod, other_pod
from tests.support.process_kubelet import ProcessKubelet

GPUS: dict[str, Any] = {"gpus": True, "resource": "nvidia.com/gpu"}


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """Provide a stub API server with two nodes of four GPUs, and an engine that polls often."""
    found = Stub(tmp_path)
    found.cluster.nodes = [node("n1", gpus=4), node("n2", gpus=4)]
    for module, name, value in (
        (nodes, "EVERY_S", 0.0),
        (status, "SETTLE_S", 0.1),
        (status, "RECORD_S", 0.1),
        (events, "SOON_S", 0.0),
        (api, "PAGE", 1),
    ):
        monkeypatch.setattr(module, name, value)
    with found.serving():
        monkeypatch.setenv("KUBECONFIG", str(found.config))
        yield found


@pytest.fixture
def kubelet(stub: Stub, tmp_path: Path) -> ProcessKubelet:
    """Provide a scheduler and kubelet that run the stub's pods as processes."""
    found = ProcessKubelet(stub.cluster, tmp_path)
    stub.begin(found.run)
    return found


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., KubernetesEngine]:
    return lambda **settings: sleeping_engine(tmp_path, **settings)


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., LaunchSpec]:
    make = specifications(tmp_path, tmp_path / "home", "python")
    return lambda number=1, **fields: make(number).model_copy(update={"pool": "cloud", **fields})


async def holds(engine: KubernetesEngine, **wanted: int) -> None:
    """Wait until other pods hold this many slots of the nodes."""
    found: dict[str, int] = {}

    async def look() -> bool:
        nonlocal found
        found = {each.name: sum(holder.slots for holder in each.held_by) for each in await engine.nodes()}
        return found == wanted

    try:
        await until(look, f"others hold {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{error}; they hold {found}") from None


async def running(engine: KubernetesEngine, gang: LaunchSpec) -> None:
    async def look() -> bool:
        return (await status_of(engine, gang.id)).phase == "running"

    await until(look, "the pod runs")


def test_pods_of_other_namespaces_are_counted_from_their_start_to_their_end(stub, make, job, kubelet):
    async def go():
        engine = make(**GPUS)
        await holds(engine, n1=0, n2=0)
        stub.do(lambda cluster: cluster.create("pods", notebook_pod("dave", "n1", 3)))
        stub.do(lambda cluster: cluster.create("pods", other_pod("web", "n2", nvidia__com___gpu=1)))
        await holds(engine, n1=3, n2=1)
        (first, _) = await engine.nodes()
        assert [(each.name, each.server) for each in first.held_by] == [("pod jhub/jupyter-dave", "dave/")]
        await engine.submit(job(), "a")  # the pool's own
        await running(engine, job())
        stub.do(lambda cluster: cluster.get("pods", "web")["status"].update(phase="Succeeded"))
        stub.do(lambda cluster: cluster.put("pods", cluster.get("pods", "web"), "MODIFIED"))
        stub.do(lambda cluster: cluster.put("pods", cluster.get("pods", "jupyter-dave"), "DELETED"))
        await holds(engine, n1=0, n2=0)

    asyncio.run(go())


def test_without_the_right_to_see_other_namespaces_those_of_its_own_are_counted(stub, make):
    async def go():
        engine = make(**GPUS)
        stub.do(lambda cluster: cluster.forbidden.add(("list", "pods of the cluster")))
        stub.do(lambda cluster: cluster.create("pods", notebook_pod("dave", "n1", 3)))
        other = other_pod("web", "n2", namespace="ml", nvidia__com___gpu=1)
        stub.do(lambda cluster: cluster.create("pods", other))
        await holds(engine, n1=0, n2=1)
        context = CheckContext("python3", "s3://bucket/daylight", ("http://127.0.0.1:1",))
        found = {each.name: each for each in await engine.check(context)}
        assert all(each.ok for each in found.values()), found
        assert "grant list and watch of pods in the whole cluster" in found["other pods"].says
        assert found["nodes"].says == "2 nodes (2 Ready), 8 slots (nvidia.com/gpu), 1 held by other pods"

    asyncio.run(go())


def test_a_quota_is_the_pools_limit_before_any_pod_is_refused(stub, make):
    async def go():
        engine = make(**GPUS)
        stub.do(lambda cluster: cluster.quota.update({"requests.nvidia.com/gpu": 4}))
        other = other_pod("web", "n2", namespace="ml", nvidia__com___gpu=1)
        stub.do(lambda cluster: cluster.create("pods", other))

        async def limited() -> bool:
            found = await engine.nodes()
            held = sum(holder.slots for each in found for holder in each.held_by)
            return (sum(each.slots for each in found), held) == (4, 1)

        await until(limited, "the quota limits the pool")
        assert engine.limit() == "namespace ml: quota gpus: requests.nvidia.com/gpu 1 of 4 in use"
        stub.do(lambda cluster: cluster.quota.clear())
        await holds(engine, n1=0, n2=1)
        assert engine.limit() == ""

    asyncio.run(go())


def test_pods_are_followed_after_the_server_has_forgotten_its_history(stub, make):
    async def go():
        engine = make(**GPUS)
        await holds(engine, n1=0, n2=0)
        stub.expire()
        stub.do(lambda cluster: cluster.create("pods", notebook_pod("dave", "n1", 2)))
        await holds(engine, n1=2, n2=0)

    asyncio.run(go())


def test_a_gang_leaves_a_node_whose_end_is_announced_and_says_why(stub, make, job, kubelet):
    async def go():
        engine = make()
        await engine.nodes()
        await engine.submit(job(), "a")
        await running(engine, job())
        taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        stub.do(lambda cluster: cluster.nodes[0]["spec"].update(taints=[taint]))

        async def ending() -> bool:
            return [each.state for each in await engine.nodes()] == ["ending", "Ready"]

        await until(ending, "the node ends")
        found = await ended(engine, job().id)  # the launcher of this test keeps no record
        assert (found.outcome, found.result.failure.consequence) == (Outcome.LOST, True)
        assert "the end of node n1 is announced (karpenter.sh/disrupted)" in found.result.failure.message

    asyncio.run(go())


def test_an_event_tells_who_has_deleted_a_pod(stub, make, job, kubelet, monkeypatch):
    monkeypatch.setattr(status, "RECORD_S", 5.0)

    async def go():
        engine = make()
        await engine.submit(job(), "a")
        await running(engine, job())
        (pod,) = stub.pods()
        name = pod["metadata"]["name"]
        said = {"reason": "Preempted", "message": "Preempted by ml/urgent on node n1"}
        stub.do(lambda cluster: cluster.events.update({name: [said]}))
        stub.do(lambda cluster: cluster.delete("pods", name, {}))
        found = await ended(engine, job().id)
        assert (found.outcome, found.result.failure.type) == (Outcome.LOST, "Deleted")
        assert found.result.failure.message.endswith(
            "deleted in Kubernetes: Preempted: Preempted by ml/urgent on node n1"
        )

    asyncio.run(go())
