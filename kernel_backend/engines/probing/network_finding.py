"""Derive from the probe programs' answers whether ranks on two nodes can connect, and how fast: pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.launch.nodes import usable_addresses
from kernel_backend.model.launch.probe import NodeProbe

_OPEN = "let the nodes connect to each other at all TCP ports, which ranks choose at random"
_INTERFACE = "set `interface` of the pool to a network device that all nodes share"


def address_to_use(probes: Sequence[NodeProbe], interface: str | None) -> str:
    """Return the first address of node 0 to which all other nodes could connect; "" if there is none.

    `probes` are the answers of all nodes, in order of node numbers. With `interface`, only addresses of that network
    device count.
    """
    reached = [{each.address for each in probe.reached or ()} for probe in probes[1:]]
    usable = usable_addresses(probes[0].addresses, interface)
    return next((address for address in usable if all(address in each for each in reached)), "")


def network(probes: Sequence[NodeProbe], interface: str | None) -> PoolFinding:
    """Return the finding on whether the nodes can connect to each other, with the data rate of an all-reduce.

    With `interface`, only addresses of that network device count.
    """
    first, *others = probes
    usable = usable_addresses(first.addresses, interface)
    if not first.addresses or any(each.reached is None for each in others):
        return _red("the nodes did not come so far", "look at the findings above")
    if not usable:
        return _red(f"{first.name} has no address on {interface}: it has {_devices(first)}", _INTERFACE)
    if not address_to_use(probes, interface):
        names = ", ".join(f"{each.name} ({_devices(each)})" for each in others)
        says = f"{names} cannot connect to {first.name}: tried {', '.join(usable)}, port {first.probe_port}"
        return _red(says, f"{_OPEN}; or {_INTERFACE}")
    return _all_reduce(probes)


def _all_reduce(probes: Sequence[NodeProbe]) -> PoolFinding:
    results = [each.all_reduce for each in probes if each.all_reduce is not None]
    route = " - ".join(f"{each.own} ({each.device or 'no device'})" for each in results)
    if len(results) < len(probes):
        silent = ", ".join(each.name for each in probes if each.all_reduce is None)
        return _red(f"{silent}: no end of the all-reduce{f', {route}' if route else ''}", f"{_OPEN}; or {_INTERFACE}")
    if problems := [
        f"{each.name}: {each.all_reduce.problem}" for each in probes if _has_problem(each) and each.all_reduce
    ]:
        torch = any("No module named" in each for each in problems)
        todo = "install torch there" if torch else f"{_OPEN}; or {_INTERFACE}"
        return _red(f"no all-reduce by gloo, {route}: {'; '.join(dict.fromkeys(problems))}", todo)
    seconds = max(each.seconds for each in results)
    rate = results[0].size / seconds / 1e9 if seconds else 0.0
    says = f"all-reduce of {results[0].size / 1e6:.0f} MB by gloo: {rate:.2f} GB/s, {route}"
    return PoolFinding(name="network", ok=True, says=says)


def _has_problem(probe: NodeProbe) -> bool:
    return probe.all_reduce is not None and bool(probe.all_reduce.problem)


def _devices(probe: NodeProbe) -> str:
    return ", ".join(f"{each.name} {each.address}" for each in probe.addresses)


def _red(says: str, todo: str) -> PoolFinding:
    return PoolFinding(name="network", ok=False, says=says, todo=todo)
