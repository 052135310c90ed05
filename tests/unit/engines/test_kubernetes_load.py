"""What is free on the nodes of a pool of Kubernetes, and which pods of others wait for it."""

from __future__ import annotations

from typing import Any

from kernel_backend.engines.kubernetes.cluster.load import site_load
from kernel_backend.engines.kubernetes.cluster.nodes import pool_nodes
from kernel_backend.engines.kubernetes.cluster.pods import cluster_pod
from kernel_backend.model.cluster.pools import read_pool
from kernel_backend.model.cluster.site_load import SiteLoad
from tests.support.kubernetes_stub import node, other_pod


def load(*pods: dict[str, Any], own: tuple[dict[str, Any], ...] = (), **settings: Any) -> SiteLoad:
    items = [node("n1", gpus=4), node("n2", gpus=4)]
    items[0]["metadata"]["labels"] = {"zone": "a"}
    pool = read_pool("cloud", {"engine": "kubernetes", "image": "i", **settings})
    seen = [cluster_pod(each, {"daylight/gang": "1.1-1"}) for each in pods]
    return site_load(7.0, pool_nodes(items, pool, seen)[0], items, pool, [cluster_pod(each) for each in own], seen)


def pod(name: str, node: str = "", **spec: Any) -> dict[str, Any]:
    found = other_pod(name, node, nvidia__com___gpu=spec.pop("gpus", 1))
    found["spec"] |= spec
    return found


def test_what_own_and_other_pods_hold_is_not_free():
    found = load(pod("web", "n1"), pod("other", "n2", gpus=4), own=(pod("rank", "n1", gpus=2), pod("next")))
    assert (found.at, dict(found.free), found.waiting) == (7.0, {"n1": 1, "n2": 0}, ())


def test_nodes_that_an_autoscaler_may_add_are_not_free_yet():
    assert dict(load(most_slots=16).free) == {"n1": 4, "n2": 4}


def test_a_pod_of_others_waits_if_a_node_of_the_pool_could_serve_it():
    found = load(
        pod("here", nodeSelector={"zone": "a"}, gpus=2),
        pod("elsewhere", nodeSelector={"zone": "b"}),
        pod("queued", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
        pod("thin", gpus=0),
    )
    assert [(each.name, each.slots, each.one_node) for each in found.waiting] == [("pod jhub/here", 2, True)]
