"""Test that the pods of a gang start together or not at all, by PodGroups or by Kueue, if the cluster has them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kernel_backend.engines.kubernetes import watch, workloads
from kernel_backend.engines.kubernetes.check import admission_findings
from kernel_backend.engines.kubernetes.discovery import Admission
from kernel_backend.engines.kubernetes.engine import KubernetesEngine
from kernel_backend.model.cluster.pools import read_pool
from kernel_backend.model.launch.launch_spec import LaunchSpec
from tests.engines.contract import status as status_of
from tests.engines.contract import until
from tests.support import kueue
from tests.support.builders import share
from tests.support.kubernetes_stub import Cluster

TWO_NODES = (share((0, 1), "n1"), share((0, 1), "n2"))


async def begun(engine: KubernetesEngine, *gangs: LaunchSpec) -> None:
    async def look() -> bool:
        found = [await status_of(engine, each.id) for each in gangs]
        return all(each is not None and each.phase == "running" for each in found)

    await until(look, "the pods run")


def member(pod: dict[str, Any]) -> str:
    """Return the PodGroup that a pod names, in either API's form."""
    label = pod["metadata"]["labels"].get("scheduling.x-k8s.io/pod-group", "")
    return str(label or pod["spec"].get("schedulingGroup", {}).get("podGroupName", ""))


@pytest.mark.parametrize(
    ("version", "spec"),
    [
        ("scheduling.x-k8s.io/v1alpha1", {"minMember": 2}),
        ("scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"gang": {"minCount": 2}}}),
    ],
)
def test_a_gang_of_several_pods_has_a_pod_group_where_there_is_one(stub, make, job, kubelet, version, spec):
    stub.do(lambda cluster: cluster.groups.update({version: ["podgroups"]}))

    async def go():
        engine, gang = make(), job(placement=TWO_NODES)
        await engine.submit(gang, "a")
        await engine.submit(job(2), "b")
        (group,) = stub.do(lambda cluster: cluster.list("podgroups")["items"])
        assert (group["apiVersion"], group["spec"]) == (version, spec)
        name = group["metadata"]["name"]
        assert sorted(map(member, stub.pods())) == ["", name, name]
        await begun(engine, gang, job(2))
        await engine.kill(gang.id)
        assert stub.do(lambda cluster: cluster.list("podgroups")["items"]) == []

    asyncio.run(go())


def test_without_the_right_to_create_pod_groups_gangs_begin_all_the_same(stub, make, job, kubelet):
    def act(cluster: Cluster) -> None:
        cluster.groups["scheduling.x-k8s.io/v1alpha1"] = ["podgroups"]
        cluster.forbidden.add(("create", "podgroups"))

    stub.do(act)

    async def go():
        engine, gang = make(), job(placement=TWO_NODES)
        await engine.submit(gang, "a")
        await begun(engine, gang)

    asyncio.run(go())


def test_a_gang_waits_in_a_queue_of_kueue_with_its_reason_until_it_is_admitted(stub, make, job, kubelet, monkeypatch):
    monkeypatch.setattr(watch, "SOON_S", 0.0)
    monkeypatch.setattr(workloads, "EVERY_S", 0.0)
    stub.do(lambda cluster: cluster.groups.update({kueue.API: ["workloads"]}))

    async def go():
        engine, gang = make(queue="team"), job(placement=TWO_NODES)
        await engine.submit(gang, "a")
        first, second = stub.pods()
        labels = first["metadata"]["labels"]
        group = labels[kueue.GROUP]
        assert group == second["metadata"]["labels"][kueue.GROUP]
        assert labels["kueue.x-k8s.io/queue-name"] == "team"
        assert first["metadata"]["annotations"] == second["metadata"]["annotations"]
        assert first["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "2"

        async def told() -> bool:
            found = await status_of(engine, gang.id)
            return found is not None and (found.phase, found.reason) == ("pending", f"Kueue: {kueue.WHY}")

        await until(told, "Kueue's reason is told")
        stub.do(lambda cluster: kueue.admit(cluster, group))
        await begun(engine, gang)

    asyncio.run(go())


SETTINGS = read_pool("cloud", {"engine": "kubernetes", "image": "i"}).settings
QUEUED = read_pool("cloud", {"engine": "kubernetes", "image": "i", "queue": "team"}).settings


@pytest.mark.parametrize(
    ("admission", "settings", "found"),
    [
        (Admission(), SETTINGS, [("gangs", True, "no PodGroup in this cluster: a part of a gang keeps", "")]),
        (Admission("scheduling.k8s.io/v1alpha2"), SETTINGS, [("gangs", True, "(scheduling.k8s.io/v1alpha2) has", "")]),
        (Admission(forbidden="a/v1"), SETTINGS, [("gangs", True, "which the service may not create", "grant it")]),
        (
            Admission(workloads=kueue.API),
            QUEUED,
            [("gangs", True, "", ""), ("queue", True, "admits the gangs, in its queue team", "")],
        ),
        (
            Admission(),
            QUEUED,
            [("gangs", True, "", ""), ("queue", False, "has no Kueue, whose queue team", "remove `queue`")],
        ),
    ],
)
def test_a_check_says_how_gangs_are_admitted(admission, settings, found):
    said = admission_findings(admission, settings)
    assert [(each.name, each.ok) for each in said] == [(name, ok) for name, ok, *_ in found]
    assert all(says in each.says and todo in each.todo for each, (*_, says, todo) in zip(said, found, strict=True))
