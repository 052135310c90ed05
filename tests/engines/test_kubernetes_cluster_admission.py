"""Test that a real API server accepts a gang's PodGroup and pods, found by discovery, with the guide's rights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kernel_backend.engines.kubernetes import watch, workloads
from tests.engines.contract import status as status_of
from tests.engines.contract import until
from tests.support import kueue
from tests.support.builders import share
from tests.support.kubernetes_admin import Admin, ApiError
from tests.support.kubernetes_nodes import until as soon
from tests.support.kubernetes_site import KubernetesSite

pytestmark = pytest.mark.kubernetes
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODGROUPS = "scheduling.x-k8s.io/v1alpha1"
TWO_NODES = (share((0, 1), "n1"), share((0, 1), "n2"))
# The fields of the published definitions that are written or read here: others would be cut off.
MEMBERS = {"minMember": {"type": "integer"}, "scheduleTimeoutSeconds": {"type": "integer"}}
CONDITION = {name: {"type": "string"} for name in ("type", "status", "reason", "message")}
CONDITIONS = {"conditions": {"type": "array", "items": {"type": "object", "properties": CONDITION}}}


def definition(version: str, plural: str, kind: str, **fields: dict[str, Any]) -> dict[str, Any]:
    group, _, number = version.partition("/")
    parts = {name: {"type": "object", "properties": properties} for name, properties in fields.items()}
    schema = {"openAPIV3Schema": {"type": "object", "properties": parts}}
    served = {"name": number, "served": True, "storage": True, "schema": schema}
    spec = {
        "group": group,
        "scope": "Namespaced",
        "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
        "versions": [served],
    }
    # Groups below k8s.io are those of reviewed APIs.
    metadata = {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


def serves(admin: Admin, version: str, plural: str) -> bool:
    try:
        return any(each["name"] == plural for each in admin.get(f"/apis/{version}")["resources"])
    except ApiError as error:
        if error.status != 404:
            raise
        return False


@pytest.fixture
def site(kubernetes_site: KubernetesSite) -> Iterator[KubernetesSite]:
    """Provide a namespace of a cluster with PodGroups of scheduler-plugins, and Workloads of Kueue."""
    admin, wanted = kubernetes_site.admin, {PODGROUPS: "podgroups", kueue.API: "workloads"}
    made = [
        definition(PODGROUPS, "podgroups", "PodGroup", spec=MEMBERS),
        definition(kueue.API, "workloads", "Workload", status=CONDITIONS),
    ]
    for each in made:
        admin.create(CRDS, each)
    soon(lambda: all(serves(admin, *each) for each in wanted.items()), "the definitions are served")
    yield kubernetes_site
    for each in made:
        admin.delete(f"{CRDS}/{each['metadata']['name']}")
    soon(lambda: not any(serves(admin, *each) for each in wanted.items()), "the definitions are gone")


def test_a_pod_group_is_found_created_and_deleted_with_its_gang(site, make, job):
    groups = f"/apis/{PODGROUPS}/namespaces/{site.namespace}/podgroups"

    async def go():
        engine, gang = make(), job(placement=TWO_NODES)
        await engine.submit(gang, "a")
        (group,) = site.admin.list(groups)
        name = group["metadata"]["name"]
        assert group["spec"] == {"minMember": 2}
        assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in site.pods()} == {name}

        async def runs() -> bool:
            found = await status_of(engine, gang.id)
            return found is not None and found.phase == "running"

        await until(runs, "the pods run")
        await engine.kill(gang.id)
        await engine.forget(gang.id)

        async def gone() -> bool:
            return not site.admin.list(groups)

        await until(gone, "the garbage collector deletes the group with its owner")

    asyncio.run(go())


def test_the_reason_of_kueue_is_that_of_the_wait(site, make, job, monkeypatch):
    monkeypatch.setattr(watch, "SOON_S", 0.0)
    monkeypatch.setattr(workloads, "EVERY_S", 0.0)

    async def go():
        engine, gang = make(queue="team", cpus_per_slot=1000), job(placement=TWO_NODES)
        await engine.submit(gang, "a")
        first, second = site.pods()
        assert first["metadata"]["annotations"] == second["metadata"]["annotations"]
        group = first["metadata"]["labels"][kueue.GROUP]
        waits = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": kueue.WHY}
        workload = {"apiVersion": kueue.API, "kind": "Workload", "metadata": {"name": group}}
        path = f"/apis/{kueue.API}/namespaces/{site.namespace}/workloads"
        site.admin.create(path, {**workload, "status": {"conditions": [waits]}})

        async def told() -> bool:
            found = await status_of(engine, gang.id)
            return found is not None and (found.phase, found.reason) == ("pending", f"Kueue: {kueue.WHY}")

        await until(told, "Kueue's reason is told")

    asyncio.run(go())
