"""Test that the nodes of a pool of Kubernetes are those on which its pods may run, with the right slots."""

from __future__ import annotations

from typing import Any

from kernel_backend.engines.kubernetes.cluster.nodes import pool_nodes
from kernel_backend.model.cluster.pools import Pool, read_pool
from kernel_backend.model.resources import Node
from tests.support.kubernetes_stub import node


def pool(**settings: Any) -> Pool:
    return read_pool("cloud", {"engine": "kubernetes", "image": "i", **settings})


def parse_nodes(items: list[dict[str, Any]], of: Pool) -> list[Node]:
    return pool_nodes(items, of)[0]


def tainted(name: str, key: str, effect: str = "NoSchedule") -> dict[str, Any]:
    found = node(name, gpus=4)
    found["spec"]["taints"] = [{"key": key, "value": "vision", "effect": effect}]
    return found


def test_a_slot_is_a_gpu_where_there_are_any_and_a_share_of_the_cpus_elsewhere():
    gpus = parse_nodes([node("n1", cpus=8, gpus=4), node("n2", cpus=8)], pool(cpus_per_slot=2))
    assert [(each.name, each.kind, each.slots) for each in gpus] == [("n1", "cuda", 4), ("n2", "cuda", 0)]
    cpus = parse_nodes([node("n1", cpus=8)], pool(cpus_per_slot=2))
    assert [(each.kind, each.slots, each.cores) for each in cpus] == [("cpu", 4, 8)]
    assert parse_nodes([node("n1", gpus=4)], pool(gpus=False))[0].kind == "cpu"


def test_a_node_that_is_away_or_cordoned_says_so():
    away, cordoned = node("n1"), node("n2")
    away["status"]["conditions"][0] |= {"status": "Unknown", "message": "Kubelet stopped posting node status."}
    cordoned["spec"] = {
        "unschedulable": True,
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    second, first = parse_nodes([away, cordoned], pool())
    assert (first.healthy, first.state, first.reason) == (False, "NotReady", "Kubelet stopped posting node status.")
    assert (second.healthy, second.drained, second.state) == (True, True, "cordoned")


def test_a_node_whose_taint_is_not_tolerated_is_none_of_the_pools():
    nodes = [tainted("n1", "team"), tainted("n2", "other"), tainted("n3", "team", "PreferNoSchedule")]
    assert [each.name for each in parse_nodes(nodes, pool())] == ["n3"]
    assert [each.name for each in parse_nodes(nodes, pool(tolerations=["team=vision:NoSchedule"]))] == ["n1", "n3"]
    assert [each.name for each in parse_nodes(nodes, pool(tolerations=["team=sound"]))] == ["n3"]
    assert len(parse_nodes(nodes, pool(tolerations=["team", "other:NoSchedule"]))) == 3


def test_nodes_that_are_away_do_not_use_up_the_most_slots():
    away = node("n1", gpus=4)
    away["status"]["conditions"] = []
    found = parse_nodes([away, node("n2", gpus=4), node("n3", gpus=4)], pool(most_slots=6))
    assert {each.name: each.slots for each in found} == {"n2": 4, "n3": 2, "n1": 0}
