"""Test that actions of a real control plane on a gang are explained, and that no gang keeps a part of its nodes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from kernel_backend.engines.base import CheckContext, EngineUnavailable
from kernel_backend.engines.kubernetes import manifests, retries, status
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.cluster import nodes
from kernel_backend.engines.kubernetes.engine import KubernetesEngine
from kernel_backend.engines.kubernetes.refusals import Refused
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.states import Outcome
from tests.engines.contract import ended, until
from tests.engines.contract import status as status_of
from tests.support.builders import share
from tests.support.kubernetes_admin import Manifest
from tests.support.kubernetes_site import KubernetesSite
from tests.torture import kubernetes_races

pytestmark = pytest.mark.kubernetes
TWO_NODES = (share((0, 1), "n1"), share((0, 1), "n2"))
WHOLE_NODES = tuple(share(tuple(range(8)), name) for name in ("n1", "n2"))


@pytest.fixture
def site(kubernetes_site: KubernetesSite, monkeypatch: pytest.MonkeyPatch) -> KubernetesSite:
    """Provide a namespace of a real Kubernetes with two nodes, and an engine that polls often."""
    for module, name, value in (
        (retries, "RETRY_S", 0.2),
        (nodes, "EVERY_S", 0.0),
        (status, "SETTLE_S", 0.1),
        (status, "RECORD_S", 0.1),
        (manifests, "UNREACHABLE_S", 1),
    ):
        monkeypatch.setattr(module, name, value)
    return kubernetes_site


async def told(engine: KubernetesEngine, gang: LaunchSpec, words: str) -> str:
    """Wait until the reason of a wait contains this text, and return the reason."""
    last = ""

    async def look() -> bool:
        nonlocal last
        found = await status_of(engine, gang.id)
        last = f"{found.phase}: {found.reason} {found.result}" if found else "unknown"
        return bool(found and found.phase == "pending" and words in found.reason)

    try:
        await until(look, f"the gang waits for {words}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it says {last}") from None
    return last


async def running(engine: KubernetesEngine, gang: LaunchSpec) -> None:
    async def look() -> bool:
        found = await status_of(engine, gang.id)
        assert found is not None
        assert found.phase != "ended", found
        return found.phase == "running"

    await until(look, "the pods run")


async def answered(engine: KubernetesEngine) -> None:
    async def look() -> bool:
        with contextlib.suppress(EngineUnavailable):
            await engine.statuses()
            return True
        return False

    await until(look, "the API server answers")


async def gone(site: KubernetesSite, count: int = 0) -> None:
    async def look() -> bool:
        return len(site.pods()) == count

    await until(look, f"{count} pods are left")


async def lost(engine: KubernetesEngine, gang: LaunchSpec) -> tuple[str, str]:
    """Return the class and the message of a lost gang's failure."""
    found = await ended(engine, gang.id)
    assert found.outcome is Outcome.LOST, found
    assert found.result.failure.consequence
    return found.result.failure.type, found.result.failure.message


def test_a_gang_beyond_the_quota_waits_with_its_numbers_and_holds_nothing(site, make, job):
    async def go():
        engine, gang = make(), job(placement=TWO_NODES)
        site.limit(pods="2")
        await engine.submit(job(2), "a")
        await running(engine, job(2))
        await engine.submit(gang, "b")
        await told(engine, gang, "quota gpus of the namespace: pods 2 of 2 in use, 1 more wanted")
        site.limit()
        await running(engine, gang)

    asyncio.run(go())


def test_a_gang_that_the_quota_never_admits_ends_with_what_to_change(site, make, job):
    async def go():
        engine = make()
        site.limit(requests__cpu="1")
        await engine.submit(job(), "a")
        found = await ended(engine, job().id)
        assert found.outcome is Outcome.INFEASIBLE
        assert "request fewer slots" in found.result.failure.message

    asyncio.run(go())


def test_without_rights_a_gang_waits_until_they_are_granted(site, make, job):
    async def go():
        engine = make()
        site.revoke()
        await engine.submit(job(), "a")
        await told(engine, job(), 'User "ada" cannot create resource "configmaps"')
        with pytest.raises(EngineUnavailable, match="have an admin grant that right"):
            await engine.nodes()
        site.grant(again=True)
        await running(engine, job())

    asyncio.run(go())


def test_a_namespace_that_there_is_not_is_told(site, make, job):
    async def go():
        engine = make(namespace="nope")
        await engine.submit(job(), "a")
        await told(engine, job(), 'namespace "nope"')

    asyncio.run(go())


def test_the_end_of_a_namespace_ends_its_gangs_and_is_told(site, make, job):
    async def go():
        engine = make()
        await engine.submit(job(), "a")
        await running(engine, job())
        site.admin.delete(f"namespaces/{site.namespace}")
        kind, message = await lost(engine, job())
        assert (kind, "deleted in Kubernetes" in message) == ("Deleted", True), message
        await engine.submit(job(2), "a")
        await told(engine, job(2), site.namespace)

    asyncio.run(go())


def test_a_namespace_that_was_just_created_has_its_gang_wait_for_the_service_account(site, make, job):
    async def go():
        site.namespace += "-new"
        site.create_namespace()
        site.grant()
        site.use("token-of-ada")
        volumes: dict[str, Any] = {"shared": False, "volumes": []}
        engine, gang = make(**volumes), job()
        await engine.submit(gang, "a")  # a controller creates the account at the same time
        await running(engine, gang)
        await engine.kill(gang.id)
        other = make(**volumes, service_account="trainer")
        await other.submit(job(2), "a")
        await told(other, job(2), 'serviceaccount "trainer" not found')
        site.admin.create(site.path("serviceaccounts"), {"metadata": {"name": "trainer"}})
        await running(other, job(2))

    asyncio.run(go())


def test_a_token_that_is_not_valid_any_more_is_told(site, make, job):
    async def go():
        engine = make()
        await engine.submit(job(), "a")
        await running(engine, job())
        site.use("an-expired-token")
        engine = make()
        with pytest.raises(EngineUnavailable, match="log in to the cluster again"):
            await engine.nodes()
        await engine.submit(job(2), "a")
        with pytest.raises(EngineUnavailable, match="log in to the cluster again"):
            await engine.statuses()
        site.use("token-of-ada")
        await answered(engine)
        await running(engine, job())
        await running(engine, job(2))

    asyncio.run(go())


def test_a_cordoned_node_keeps_its_gang_and_takes_no_other(site, make, job):
    async def go():
        engine = make()
        site.nodes.cordon("n2")
        await engine.submit(job(), "a")
        await running(engine, job())
        site.nodes.cordon("n1")
        await engine.submit(job(2), "a")
        await told(engine, job(2), "2 node(s) were unschedulable")
        assert [(each.state, each.drained) for each in await engine.nodes()] == [("cordoned", True)] * 2
        site.nodes.cordon("n1", cordoned=False)
        await running(engine, job(2))
        await running(engine, job())

    asyncio.run(go())


def test_nodes_with_taints_that_pods_do_not_tolerate_are_the_reason_of_the_wait(site, make, job):
    async def go():
        taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
        for name in ("n1", "n2"):
            site.admin.change(f"nodes/{name}", {"spec": {"taints": [taint]}})
        engine = make()
        await engine.submit(job(), "a")
        await told(engine, job(), "{team: vision}, that the pod didn't tolerate")
        other = make(tolerations=["team=vision:NoSchedule"])
        await other.submit(job(2), "a")
        await running(other, job(2))

    asyncio.run(go())


def test_a_check_says_what_works_and_which_right_is_missing(site, make):
    async def go():
        site.limit(pods="2")
        context = CheckContext("python3", "s3://bucket/daylight", ("http://127.0.0.1:1",))
        found = {each.name: each for each in await make().check(context)}
        assert all(each.ok for each in found.values()), found
        assert "v1.20.2" in found["engine"].says
        assert found["nodes"].says == "2 nodes (2 Ready), 16 slots (CPUs)"
        assert found["quota"].says == "gpus: pods 0 of 2"
        assert "known, in all namespaces" in found["other pods"].says
        site.revoke()

        async def missing() -> bool:
            rights = next(each for each in await make().check(context) if each.name == "rights")
            return "may not create pods" in rights.says

        await until(missing, "the rights are gone")

    asyncio.run(go())


def _delete(site: KubernetesSite, pod: Manifest) -> None:
    site.admin.delete(site.path("pods", pod["metadata"]["name"]))


def _drain(site: KubernetesSite, pod: Manifest) -> None:
    site.nodes.cordon(pod["spec"]["nodeName"])
    name = pod["metadata"]["name"]
    site.admin.create(
        f"{site.path('pods', name)}/eviction",
        {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name}},
    )


def _press(site: KubernetesSite, pod: Manifest) -> None:
    site.nodes.press(pod, "The node was low on resource: memory. ")


def _fill(site: KubernetesSite, pod: Manifest) -> None:
    site.nodes.press(pod, 'Usage of EmptyDir volume "shm" exceeds the limit "8Gi". ')


def _taint(site: KubernetesSite, pod: Manifest) -> None:
    taint = {"key": "maintenance", "effect": "NoExecute"}
    site.admin.change(f"nodes/{pod['spec']['nodeName']}", {"spec": {"taints": [taint]}})


def _preempt(site: KubernetesSite, pod: Manifest) -> None:
    name = f"urgent-{site.namespace}"
    scheduling = "/apis/scheduling.k8s.io/v1/priorityclasses"
    site.admin.create(scheduling, {"metadata": {"name": name}, "value": 1000})
    container = {"name": "main", "image": "test", "command": ["sleep", "600"]}
    container["resources"] = {"requests": {"cpu": "8"}}
    spec = {"containers": [container], "priorityClassName": name}
    site.admin.create(site.path("pods"), {"metadata": {"name": "urgent"}, "spec": spec})


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (_delete, "Deleted", "was deleted in Kubernetes"),
        (_drain, "Deleted", "was deleted in Kubernetes"),
        (_taint, "Deleted", "was deleted in Kubernetes: TaintManagerEviction: "),
        (_preempt, "Deleted", "was deleted in Kubernetes: Preempted: Preempted by "),
        (_press, "Evicted", "low on resource: memory"),
    ],
)
def test_a_pod_that_is_taken_away_ends_its_gang_as_lost(site, make, job, act, kind, words, monkeypatch):
    monkeypatch.setattr(status, "RECORD_S", 3.0)  # for the event that tells who has taken it

    async def go():
        engine, gang = make(), job(placement=WHOLE_NODES)
        await engine.submit(gang, "a")
        await running(engine, gang)
        act(site, site.pods()[0])
        found, message = await lost(engine, gang)
        assert (found, words in message) == (kind, True), message
        await engine.kill(gang.id)
        await engine.forget(gang.id)
        await gone(site, 1 if act is _preempt else 0)

    asyncio.run(go())


def test_a_pod_that_fills_its_own_shared_memory_fails_with_what_to_change(site, make, job):
    async def go():
        engine = make()
        await engine.submit(job(), "a")
        await running(engine, job())
        _fill(site, site.pods()[0])
        found = await ended(engine, job().id)
        assert (found.outcome, "raise `shm_gb`" in found.result.failure.message) == (Outcome.FAILED, True)

    asyncio.run(go())


def test_a_lost_node_ends_the_gang_and_what_runs_there_ends_when_it_is_back(site, make, job):
    async def go():
        engine, gang = make(), job(placement=TWO_NODES)
        await engine.submit(gang, "a")
        await running(engine, gang)
        site.nodes.lost.add("n2")

        async def away() -> bool:
            return [each.name for each in await engine.nodes() if not each.healthy] == ["n2"]

        await until(away, "the engine sees that the node is away, as a service does that asks for the nodes")
        kind, message = await lost(engine, gang)
        assert (kind, "lost node n2" in message) == ("NodeLost", True), message
        (left,) = (each for each in site.pods() if each["spec"]["nodeName"] == "n2")
        assert left["status"]["phase"] == "Running"
        assert left["metadata"]["deletionTimestamp"]
        await engine.kill(gang.id)  # confirmed, as nobody can end it: what it commits is refused
        await engine.forget(gang.id)
        site.nodes.find("n2")
        await gone(site)

    asyncio.run(go())


def test_of_gangs_that_race_for_two_nodes_none_keeps_a_part_of_its_nodes(site, tmp_path):
    async def go():
        engine = kubernetes_races.lane_of(site, tmp_path / "lane", 0)
        found = await kubernetes_races.races(site, tmp_path / "lane", engine, 0, range(1, 6))
        assert sum(race.whole + len(race.kept) for race in found) == 5 * kubernetes_races.GANGS

    asyncio.run(go())


def test_a_watch_that_is_too_old_is_refused_as_410(site):
    site.plane.kill_server()
    site.plane.start_server()  # it remembers nothing from before its start

    async def go():
        api = Api(None, None)
        with pytest.raises(Refused) as error:
            async for _ in api.watch(await api.of("pods"), {"resourceVersion": "1"}):
                pass
        assert error.value.status == 410

    asyncio.run(go())


def test_gangs_outlive_an_api_server_that_restarts(site, make, job):
    async def go():
        engine = make()
        await engine.submit(job(), "a")
        await running(engine, job())
        site.plane.kill_server()
        await engine.submit(job(2), "a")
        await told(engine, job(2), "does not answer")
        site.plane.start_server()
        await running(engine, job())
        await running(engine, job(2))
        assert len(site.pods()) == 2

    asyncio.run(go())
