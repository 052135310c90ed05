"""Test when the launchers of a gang's nodes may start their ranks."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.lifecycle.joining import REACH_S, Impossible, Joined, Pending, Wanted, joined, wrong_clocks
from kernel_backend.model.launch.nodes import Device, NodeOffer, Reached, placement_of
from kernel_backend.model.resources import Share

WANTED = Wanted(slots=4, kind="cuda", version="1.0", join_timeout=60.0)
DEVICES = (Device("ib0", "10.1.0.1"), Device("eth0", "10.0.0.1"), Device("lo", "127.0.0.1"))
BOTH = (Reached("10.1.0.1", "10.1.0.2"), Reached("10.0.0.1", "10.0.0.2"))


def offer(node: int = 0, nodes: int = 2, **fields: Any) -> NodeOffer:
    defaults: dict[str, Any] = {
        "process": f"launcher-{node}",
        "name": f"n{node + 1}",
        "addresses": DEVICES if node == 0 else (Device("eth0", f"10.0.0.{node + 1}"),),
        "kind": "cuda",
        "slots": 2,
        "version": "1.0",
        "clock": 100.0,
        "rank_ports": (),
    }
    ports = {"torch_port": 4001, "horovod_port": 4002, "probe_port": 4003} if node == 0 else {}
    return NodeOffer(node=node, nodes=nodes, **(defaults | ports | fields))


def both(**fields: Any) -> dict[int, NodeOffer]:
    return {0: offer(), 1: offer(1, **fields)}


def test_a_gang_waits_for_its_last_node():
    found = joined({0: offer()}, WANTED, waited=5.0, all_there=0.0)
    assert found == Pending("1 of 2 nodes have joined: n1")


def test_all_nodes_try_the_addresses_of_the_first_before_ranks_start():
    found = joined(both(), WANTED, 5.0, 0.0)
    assert isinstance(found, Pending)
    assert found.probe == ("10.1.0.1", "10.0.0.1", "127.0.0.1")


def test_the_first_address_that_every_node_reaches_is_taken():
    third = offer(2, 3, slots=2, reached=(Reached("10.0.0.1", "10.0.0.3"),))
    offers = {0: offer(nodes=3), 1: offer(1, 3, reached=BOTH), 2: third}
    found = joined(offers, WANTED._replace(slots=6), 5.0, 1.0)
    assert isinstance(found, Joined)
    assert [(node.name, node.address) for node in found.nodes] == [
        ("n1", "10.0.0.1"),
        ("n2", "10.0.0.2"),
        ("n3", "10.0.0.3"),
    ]
    assert (found.nodes[0].torch_port, found.nodes[0].horovod_port) == (4001, 4002)
    assert placement_of(found.nodes)[1] == Share(node="n2", kind="cuda", address="10.0.0.2", slots=(0, 1))


def test_the_pools_network_device_overrules():
    found = joined(both(reached=BOTH), WANTED._replace(interface="eth0"), 5.0, 1.0)
    assert isinstance(found, Joined)
    assert found.nodes[0].address == "10.0.0.1"
    missing = joined(both(reached=BOTH), WANTED._replace(interface="ib7"), 5.0, 1.0)
    assert missing == Impossible("n1 has no address on network device ib7", "failed", "n1")


def test_a_single_node_needs_no_network():
    found = joined({0: offer(nodes=1, slots=4)}, WANTED, 0.0, 0.0)
    assert isinstance(found, Joined)
    assert found.nodes[0].address == "127.0.0.1"


def test_nodes_that_do_not_reach_each_other_are_named_after_a_while():
    tried = both(reached=(Reached("172.17.0.1", "172.17.0.1"),))
    assert isinstance(joined(tried, WANTED, 5.0, REACH_S), Pending)
    found = joined(tried, WANTED, 60.0, REACH_S + 1)
    assert isinstance(found, Impossible)
    assert found.reason.startswith("n1 cannot be reached from n2: tried 10.1.0.1, 10.0.0.1, 127.0.0.1, port 4003")


def test_two_networks_without_a_common_one_are_told():
    one, other = (Reached("10.1.0.1", "10.1.0.2"),), (Reached("10.0.0.1", "10.0.0.3"),)
    offers = {0: offer(nodes=3), 1: offer(1, 3, reached=one), 2: offer(2, 3, reached=other)}
    found = joined(offers, WANTED._replace(slots=6), 60.0, REACH_S + 1)
    assert isinstance(found, Impossible)
    assert "cannot be reached from all others at once" in found.reason


def test_a_node_that_does_not_come_in_time_fails_the_gang():
    found = joined({0: offer()}, WANTED, waited=61.0, all_there=0.0)
    assert found == Impossible("1 of 2 nodes have not joined within 60 s; there were n1", "failed")


@pytest.mark.parametrize(
    ("fields", "reason", "fault"),
    [
        ({"version": "0.9"}, "n2 has Daylight 0.9, and the service 1.0: install the same there", "version"),
        ({"kind": "cpu"}, "n2 was to have slots of kind cuda, and its launcher finds cpu", "devices"),
        ({"slots": 1, "reached": BOTH}, "4 slots were asked for, and 3 are there: n1 has 2, n2 has 1", "devices"),
    ],
)
def test_a_node_that_is_not_what_was_promised_fails_the_gang_with_that_sentence(fields, reason, fault):
    found = joined(both(**fields), WANTED, 5.0, 1.0)
    assert isinstance(found, Impossible)
    assert (found.reason, found.outcome) == (reason, "failed")
    assert (found.node, found.fault) == ("n2", fault)


def test_a_lack_of_slots_is_no_nodes_fault_if_the_engine_has_chosen_unequal_shares():
    found = joined(both(slots=2), WANTED._replace(slots=5), 5.0, 1.0)
    assert isinstance(found, Impossible)
    assert (found.node, found.fault) == ("", None)


def test_clocks_that_are_all_wrong_say_that_the_services_own_is():
    right, wrong = offer(clock=100.0), offer(1, clock=400.0)
    assert wrong_clocks([right, wrong], 101.0, 5.0) == {"n2": "the clock of n2 is 299 s ahead"}
    assert wrong_clocks([offer(clock=402.0), wrong], 101.0, 5.0) == {}
    assert wrong_clocks([wrong], 101.0, 5.0) == {"n2": "the clock of n2 is 299 s ahead"}
