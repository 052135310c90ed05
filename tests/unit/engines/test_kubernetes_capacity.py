"""Test the slots of a pool of Kubernetes: without those of other pods, within quotas, with nodes to be added."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.engines.kubernetes.cluster.nodes import Quotas, pool_nodes
from kernel_backend.engines.kubernetes.cluster.pods import ClusterPod, cluster_pod, requests
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.pools import Pool, read_pool
from kernel_backend.model.resources import Node
from tests.support.kubernetes_stub import node, notebook_pod, other_pod

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb"
OWN = {"daylight/service": "5f", "daylight/pool": "cloud"}


def pool(**settings: Any) -> Pool:
    return read_pool("cloud", {"engine": "kubernetes", "image": "i", **settings})


def pod(name: str, node: str = "n1", own: bool = False, since: float = 0.0, **amounts: float) -> ClusterPod:
    named = {GPU if key == "gpus" else key: value for key, value in amounts.items()}
    return ClusterPod(name, node, named, since, own=own)


def quota(**hard: str) -> Quotas:
    most = {key.replace("gpus", f"requests.{GPU}").replace("__", "."): value for key, value in hard.items()}
    return Quotas("ml", [{"metadata": {"name": "team"}, "status": {"hard": most}}])


def slots(nodes: list[Node]) -> dict[str, tuple[int, int]]:
    """Return the slots of each node, and how many of them other pods hold."""
    return {each.name: (each.slots, sum(holder.slots for holder in each.held_by)) for each in nodes}


# What pods of others hold


def test_pods_of_others_hold_the_devices_that_they_request_and_the_pools_own_do_not():
    pods = [pod("jhub/a", gpus=2.0), pod("ml/own", own=True, gpus=1.0), pod("ml/b", "n2", gpus=1.0), pod("ml/c", "")]
    found, limit = pool_nodes([node("n1", gpus=4), node("n2", gpus=4)], pool(), pods)
    assert slots(found) == {"n1": (4, 2), "n2": (4, 1)}
    assert [(each.name, each.slots) for each in found[0].held_by] == [("pod jhub/a", 2)]
    assert limit == ""


def test_of_cpus_several_small_pods_hold_a_slot_together_and_none_where_a_part_of_the_node_is_no_slot_anyway():
    small = [pod(f"ml/{number}", cpu=0.5) for number in range(5)]
    found, _ = pool_nodes([node("n1", cpus=9)], pool(cpus_per_slot=2), small)
    assert slots(found) == {"n1": (4, 1)}  # 9 - 2.5 CPUs are room for 3 slots
    assert slots(pool_nodes([node("n1", cpus=9)], pool(cpus_per_slot=2), small[:2])[0]) == {"n1": (4, 0)}


def test_pods_that_each_node_has_make_it_smaller_so_that_no_gang_waits_for_what_never_comes():
    of_the_node = pod("kube-system/proxy", cpu=0.25)._replace(of_the_node=True)
    assert slots(pool_nodes([node("n1", cpus=4)], pool(), [of_the_node])[0]) == {"n1": (3, 0)}


def test_what_a_pod_requests_is_counted_as_the_scheduler_counts_it():
    limits = {"resources": {"limits": {GPU: "2"}}}
    assert requests({"containers": [limits, {}], "overhead": {"cpu": "250m"}}) == {GPU: 2.0, "cpu": 0.25}
    first = {"resources": {"requests": {"cpu": "4"}}}
    assert requests({"initContainers": [first], "containers": [{"resources": {"requests": {"cpu": "1"}}}]}) == {
        "cpu": 4.0
    }
    sidecar = {**first, "restartPolicy": "Always"}
    assert requests({"initContainers": [sidecar], "containers": [first]}) == {"cpu": 8.0}


def test_the_pods_of_kubespawner_say_which_server_they_are():
    assert cluster_pod(notebook_pod("ada.b@x", "n1", 1), OWN).server == "ada.b@x/"
    second = cluster_pod(notebook_pod("ada", "n1", 1, server="gpu"), OWN)
    assert (second.server, second.name, second.requests) == ("ada/gpu", "jhub/jupyter-ada-gpu", {GPU: 1.0})
    assert cluster_pod(other_pod("web", "n1", cpu=1), OWN).server == ""
    mine = other_pod("daylight-1", "n1")
    mine["metadata"]["labels"] = {**OWN, "more": "x"}
    assert cluster_pod(mine, OWN).own


# Limits


def test_a_quota_leaves_out_slots_that_others_outside_of_it_hold_first():
    pods = [pod("jhub/a", gpus=4.0)]
    found, limit = pool_nodes([node("n1", gpus=4), node("n2", gpus=4)], pool(), pods, quota(gpus="4"))
    assert slots(found) == {"n1": (0, 0), "n2": (4, 0)}
    assert limit == f"namespace ml: quota team: requests.{GPU} 0 of 4 in use"


def test_what_other_pods_of_the_namespace_have_of_a_quota_is_held_wherever_they_are():
    both = [node("n1", gpus=4), node("n2", gpus=4)]
    here = [pod("ml/notebook", gpus=2.0), pod("ml/own", "n2", own=True, gpus=1.0)]
    found, limit = pool_nodes(both, pool(), here, quota(gpus="4"))
    assert (sum(each[0] for each in slots(found).values()), sum(each[1] for each in slots(found).values())) == (4, 2)
    assert limit.endswith("3 of 4 in use")
    elsewhere = [pod("ml/notebook", "of-another-pool", gpus=2.0), pod("ml/waits", "", gpus=1.0)]
    found, _ = pool_nodes(both, pool(), elsewhere, quota(gpus="4"))
    assert (sum(each[0] for each in slots(found).values()), sum(each[1] for each in slots(found).values())) == (4, 3)
    assert {holder.name for each in found for holder in each.held_by} == {"other pods of namespace ml"}


def test_the_tightest_of_all_quotas_counts_in_slots():
    found, limit = pool_nodes(
        [node("n1", cpus=32, gpus=8)],
        pool(cpus_per_slot=4, memory_per_slot=16000),
        [],
        quota(gpus="8", requests__cpu="10", limits__memory="100Gi"),
    )
    assert slots(found) == {"n1": (2, 0)}
    assert limit == "namespace ml: quota team: requests.cpu 0 of 10 in use"


def test_a_quota_that_leaves_more_than_the_nodes_have_or_has_scopes_changes_nothing():
    items = [node("n1", gpus=4)]
    assert pool_nodes(items, pool(), [], quota(gpus="4"))[1] == ""
    scoped = quota(gpus="1")
    scoped.items[0]["spec"] = {"scopes": ["BestEffort"]}
    assert slots(pool_nodes(items, pool(), [], scoped)[0]) == {"n1": (4, 0)}


def test_most_slots_are_those_of_daylights_users_next_to_what_others_hold():
    found, _ = pool_nodes([node("n1", gpus=4), node("n2", gpus=4)], pool(most_slots=4), [pod("jhub/a", gpus=3.0)])
    assert slots(found) == {"n1": (1, 0), "n2": (3, 0)}


# Nodes that an autoscaler adds


def test_most_slots_above_what_there_is_are_nodes_that_an_autoscaler_adds():
    found, _ = pool_nodes([node("n1", cpus=16, gpus=4)], pool(most_slots=10, cpus_per_slot=2), [])
    assert [(each.name, each.slots, each.future, each.kind) for each in found] == [
        ("n1", 4, False, "cuda"),
        ("new-1", 4, True, "cuda"),
        ("new-2", 2, True, "cuda"),
    ]
    assert (found[1].state, found[1].usable) == ("not there yet", True)


def test_a_pool_without_any_node_may_grow_where_it_is_said_what_a_node_is():
    found, _ = pool_nodes([], pool(most_slots=8, node_slots=8, resource=GPU), [])
    assert [(each.name, each.slots, each.kind) for each in found] == [("new-1", 8, "cuda")]
    assert pool_nodes([], pool(most_slots=8), []) == ([], "")
    cpus, _ = pool_nodes([], pool(most_slots=8, node_slots=4, gpus=False), [])
    assert [(each.slots, each.kind) for each in cpus] == [(4, "cpu"), (4, "cpu")]


# Kinds of devices


def labelled(name: str, resource: str, count: int, **labels: str) -> dict[str, Any]:
    found = node(name)
    found["status"]["allocatable"][resource] = str(count)
    prefix = resource.removesuffix(".shared")
    found["metadata"]["labels"] |= {f"{prefix}.{key.replace('_', '-')}": value for key, value in labels.items()}
    return found


def test_parts_of_a_gpu_are_slots_of_their_own_kind():
    items = [labelled("n1", MIG, 2, product="NVIDIA-A100-SXM4-80GB-MIG-3g.40gb")]
    (found,), _ = pool_nodes(items, pool(resource=MIG), [])
    assert (found.kind, found.shown_kind, found.slots) == ("cuda", "mig-3g.40gb", 2)
    assert found.devices == ("NVIDIA A100 SXM4 80GB MIG 3g.40gb",) * 2
    (plain,), _ = pool_nodes([node("n1", gpus=2)], pool(), [])
    assert (plain.shown_kind, plain.devices) == ("cuda", ("GPU", "GPU"))


@pytest.mark.parametrize("labels", [{"sharing_strategy": "time-slicing", "replicas": "4"}, {"replicas": "2"}])
def test_a_device_that_several_pods_share_is_no_slot_without_the_admins_word(labels):
    items = [labelled("n1", GPU, 8, **labels)]
    (found,), _ = pool_nodes(items, pool(), [pod("ml/a", gpus=1.0)])
    assert (found.slots, found.state, found.held_by) == (0, "shared devices", ())
    assert f"shared by up to {labels['replicas']} pods" in found.reason
    assert "set `shared_devices`" in found.reason
    (shares,), _ = pool_nodes(items, pool(shared_devices=True), [])
    assert (shares.slots, shares.state) == (8, "Ready")


def test_a_device_of_one_pod_is_a_slot_though_labels_speak_of_sharing():
    items = [labelled("n1", GPU, 8, sharing_strategy="none", replicas="1")]
    assert slots(pool_nodes(items, pool(), [])[0]) == {"n1": (8, 0)}


def test_the_renamed_resource_of_shared_devices_needs_the_admins_word():
    with pytest.raises(InvalidRequest, match="set `shared_devices` if slots may be shares"):
        pool(resource="nvidia.com/gpu.shared")
    (found,), _ = pool_nodes(
        [labelled("n1", "nvidia.com/gpu.shared", 4, replicas="4", product="Tesla-T4-SHARED")],
        pool(resource="nvidia.com/gpu.shared", shared_devices=True),
        [],
    )
    assert (found.slots, found.shown_kind, found.devices[0]) == (4, "gpu.shared", "Tesla T4 SHARED")


# Nodes that end


@pytest.mark.parametrize(
    "key",
    [
        "cloud.google.com/impending-node-termination",
        "aws-node-termination-handler/spot-itn",
        "karpenter.sh/disrupted",
        "node.kubernetes.io/out-of-service",
        "ToBeDeletedByClusterAutoscaler",
    ],
)
def test_a_node_whose_end_is_announced_stays_in_the_pool_and_gets_no_new_gang(key):
    item = node("n1", gpus=4)
    item["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"}]
    (found,), _ = pool_nodes([item], pool(), [])
    assert (found.healthy, found.usable, found.state) == (True, False, "ending")
    assert found.reason == f"its end is announced ({key})"
