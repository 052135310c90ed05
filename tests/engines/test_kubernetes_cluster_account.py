"""Test on a real control plane: slots of other pods, quotas, parts of GPUs, and nodes that will shut down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_backend.engines.kubernetes import api, events, status
from kernel_backend.engines.kubernetes.cluster import nodes
from kernel_backend.engines.kubernetes.engine import KubernetesEngine
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import Share
from kernel_backend.model.states import Outcome
from tests.engines.contract import ended, specifications, until
from tests.engines.contract import status as status_of
from tests.engines.kubernetes_gangs import sleeping_engine
from tests.support.kubernetes_admin import Manifest
from tests.support.kubernetes_site import KubernetesSite
from tests.support.kubernetes_stub import notebook_pod

pytestmark = pytest.mark.kubernetes
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb"
HUB = "jhub"


@pytest.fixture
def site(kubernetes_site: KubernetesSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesSite]:
    """Provide a namespace of a real Kubernetes with two nodes of eight GPUs, next to a hub's namespace."""
    for module, name, value in (
        (nodes, "EVERY_S", 0.0),
        (status, "SETTLE_S", 0.1),
        (status, "RECORD_S", 3.0),
        (events, "SOON_S", 0.0),
        (api, "PAGE", 1),
    ):
        monkeypatch.setattr(module, name, value)
    hub = f"{HUB}-{kubernetes_site.namespace}"
    kubernetes_site.admin.create("namespaces", {"metadata": {"name": hub}})
    yield kubernetes_site
    kubernetes_site.admin.delete(f"namespaces/{hub}")


@pytest.fixture
def make(site: KubernetesSite, tmp_path: Path) -> Callable[..., KubernetesEngine]:
    """Provide a function `make(**settings)` that returns an engine whose slots are GPUs."""
    return lambda **settings: sleeping_engine(tmp_path, **{"gpus": True, **settings})


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., LaunchSpec]:
    make = specifications(tmp_path, tmp_path / "home", "python")

    def gang(number: int = 1, slots: int = 1) -> LaunchSpec:
        share = Share(node="n1", kind="cuda", address="n1", slots=tuple(range(slots)))
        return make(number).model_copy(update={"pool": "cloud", "placement": (share,)})

    return gang


def start(site: KubernetesSite, pod: Manifest) -> None:
    """Run a pod of the hub on the node that it names, bound as by a scheduler."""
    namespace = f"{HUB}-{site.namespace}"
    pod["metadata"] |= {"namespace": namespace}
    container = pod["spec"]["containers"][0]
    container |= {
        "image": "test",
        "command": ["sleep", "600"],
        "resources": {"limits": container["resources"]["requests"]},
    }
    pod["spec"] |= {"automountServiceAccountToken": False}
    account = f"namespaces/{namespace}/serviceaccounts/default"

    async def there() -> bool:
        return site.admin.exists(account)

    asyncio.run(until(there, "the service account is there"))
    site.admin.create(f"namespaces/{namespace}/pods", pod)


async def holds(engine: KubernetesEngine, *wanted: int) -> None:
    """Wait until other pods hold this many slots of the nodes, in order."""
    found: list[int] = []

    async def look() -> bool:
        nonlocal found
        found = [sum(holder.slots for holder in each.held_by) for each in await engine.nodes()]
        return found == list(wanted)

    try:
        await until(look, f"others hold {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{error}; they hold {found}") from None


async def running(engine: KubernetesEngine, gang: LaunchSpec) -> None:
    async def look() -> bool:
        return (await status_of(engine, gang.id)).phase == "running"

    await until(look, "the pods run")


def test_a_notebook_servers_pod_in_the_hubs_namespace_holds_its_gpus_until_it_is_gone(site, make, job):
    start(site, notebook_pod("dave", "n1", 6))

    async def go():
        engine = make()
        await holds(engine, 6, 0)
        (first, _) = await engine.nodes()
        assert [each.server for each in first.held_by] == ["dave/"]
        await engine.submit(job(slots=4), "a")  # the scheduler chooses n2
        await running(engine, job())
        await holds(engine, 6, 0)
        site.admin.delete(f"namespaces/{HUB}-{site.namespace}/pods/jupyter-dave", gracePeriodSeconds=0)
        await holds(engine, 0, 0)

    asyncio.run(go())


def test_a_quota_of_the_namespace_is_the_pools_limit_and_counts_its_own_pods(site, make, job):
    async def go():
        engine = make()
        site.limit(**{f"requests__{GPU.replace('.', '__')}": "4"})

        async def limited() -> bool:
            return sum(each.slots for each in await engine.nodes()) == 4

        await until(limited, "the quota limits the pool")
        await engine.submit(job(slots=3), "a")
        await running(engine, job())

        async def told() -> bool:
            await engine.nodes()
            return engine.limit() == f"namespace {site.namespace}: quota gpus: requests.{GPU} 3 of 4 in use"

        await until(told, "the pool's own use is told")
        await holds(engine, *(0 for _ in await engine.nodes()))

    asyncio.run(go())


def test_parts_of_gpus_are_slots_of_a_pool_of_their_own(site, make, job):
    offered = {MIG: "2"}
    site.admin.change("nodes/n1/status", {"status": {"capacity": offered, "allocatable": offered}})

    async def go():
        engine = make(resource=MIG)

        async def seen() -> bool:
            return [(each.slots, each.shown_kind) for each in await engine.nodes()] == [
                (2, "mig-3g.40gb"),
                (0, "mig-3g.40gb"),
            ]

        await until(seen, "the node offers parts")
        await engine.submit(job(slots=2), "a")
        await running(engine, job())
        (pod,) = site.pods()
        assert pod["spec"]["containers"][0]["resources"]["limits"][MIG] == "2"
        await engine.submit(job(2), "b")

        async def waits() -> bool:
            found = await status_of(engine, job(2).id)
            return found.phase == "pending" and f"Insufficient {MIG}" in found.reason

        await until(waits, "there is no further part")

    asyncio.run(go())


def test_a_gang_leaves_a_node_whose_end_is_announced(site, make, job):
    async def go():
        engine = make()
        await engine.submit(job(slots=8), "a")
        await running(engine, job())
        (pod,) = site.pods()
        name = pod["spec"]["nodeName"]
        taint = {"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}
        site.admin.change(f"nodes/{name}", {"spec": {"taints": [taint]}})

        async def ending() -> bool:
            return {each.name for each in await engine.nodes() if each.state == "ending"} == {name}

        await until(ending, "the node ends")
        found = await ended(engine, job().id)
        assert (found.outcome, found.result.failure.consequence) == (Outcome.LOST, True)
        assert f"the end of node {name} is announced ({taint['key']})" in found.result.failure.message
        await engine.submit(job(2, slots=8), "b")
        await running(engine, job(2))
        assert [each["spec"]["nodeName"] for each in site.pods() if each["status"]["phase"] == "Running"] != [name]

    asyncio.run(go())
