"""Derive findings about a pool's nodes from the answers of their probe programs: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.engines.probing.network_finding import network
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.launch.probe import NodeProbe, Versions, WriteTest
from kernel_backend.model.sizes import size

LEAST_FREE = 10**9  # free bytes below which a finding warns, as checkpoints and logs would soon use them up
CLOCKS_S = 1.0  # difference allowed between the clocks of a node and the service
_STORE = 'keep checkpoints in an object store: c.Daylight.checkpoints = "s3://bucket/runs"'
_REACHED = "let the nodes reach it, with the credentials in the service's environment variables or in files there"
_SHARED = "put it on a file system that all nodes see at the same path"


class EngineTerms(NamedTuple):
    """Words that differ by engine in the texts of findings: the engine's name, and advice on what to change."""

    engine: str
    versions: str  # how to have the same versions on all nodes
    leave_out: str  # how to keep gangs away from a node
    missing_gpus: str  # where to look for GPUs that were granted and are not seen
    unwanted_gpus: str  # how to have slots of CPUs without GPUs
    missing_cpus: str  # where to look for CPUs that were granted and are not seen


class ProbeSetup(NamedTuple):
    """Settings of a check that runs probe programs, with facts about the service's own machine to compare with."""

    pool: Pool
    python: str
    versions: Versions  # versions in that interpreter on the service's machine
    home: str
    checkpoints: str  # folder or URL; "": each owner has their own
    host: str  # host name of the service's machine; "" if nodes need not know it
    nodes: int
    gpus: bool  # whether a slot is a GPU; each node was asked for one slot
    terms: EngineTerms
    data: str = ""  # URL of remote data that the nodes read; "": none


def node_findings(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> list[PoolFinding]:
    """Return the findings about the nodes that have answered: versions, folders, service, clocks, devices, network."""
    found = [
        _versions(setup, probes),
        _home(setup, probes),
        _service(probes),
        _clocks(probes),
        _checkpoints(setup, probes),
        _devices(setup, probes),
        *([_data(setup.data, probes)] if setup.data else []),
    ]
    if setup.host:
        found.append(_host(setup, probes))
    if setup.nodes > 1:
        found += [network(probes, setup.pool.settings.interface)] if len(probes) == setup.nodes else []
    else:
        found.append(PoolFinding(name="network", ok=True, says="not checked: the pool has one node to use"))
    return found


def not_answered(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> str:
    """Return a text on how many nodes did not answer, such as `1 of 2 nodes did not answer, only n1 did`."""
    there = f", only {_names(probes)} did" if probes else ""
    return f"{setup.nodes - len(probes)} of {count(setup.nodes, 'node')} did not answer{there}"


def _versions(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> PoolFinding:
    ours = setup.versions
    labels = {"daylight": "Daylight", "python": "Python", "torch": "torch"}
    others = [
        f"{_name(each)} has {label} {theirs or 'not installed'}, and here is {own}"
        for each in probes
        for name, label in labels.items()
        if each.versions is not None
        and (own := getattr(ours, name))  # a service that only hands out trainings needs no torch
        and (theirs := getattr(each.versions, name)) != own
    ]
    if others:
        return red("versions", "; ".join(others), setup.terms.versions)
    torch = f"torch {ours.torch} here and on {_names(probes)}"
    if not ours.torch:
        theirs = sorted({each.versions.torch or "none" for each in probes if each.versions is not None})
        torch = f"here and on {_names(probes)}; torch {', '.join(theirs)} there, and none here"
    says = f"Daylight {ours.daylight}, Python {ours.python}, {torch}"
    lacking = [each for each in probes if each.versions is not None and not each.versions.torch]
    todo = f"install torch for {setup.python}" if lacking else ""
    return PoolFinding(name="versions", ok=not lacking, says=says, todo=todo)


def _home(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> PoolFinding:
    if not setup.pool.settings.shared:
        return PoolFinding(name="home", ok=True, says="not needed: files go through the service (`shared` is no)")
    return _folder("home", setup.home, {_name(each): each.home for each in probes})


def _folder(name: str, path: str, tests: Mapping[str, WriteTest | None]) -> PoolFinding:
    """Return the finding `name` about a folder that all nodes must see and be able to write to.

    `path` is the folder, and `tests` has the result of each node's test, None if the node sent none.
    """
    for is_so, says, todo in _FOLDER:
        if nodes := [node for node, test in tests.items() if is_so(test)]:
            first = tests[nodes[0]] or WriteTest()
            text = says.format(path=path, problem=first.problem and f" ({first.problem})", free=size(first.free))
            return red(name, f"{', '.join(nodes)}: {text}", todo)
    least = min((test.free for test in tests.values() if test is not None), default=0)
    return PoolFinding(name=name, ok=True, says=f"{path}: written by {', '.join(tests)}, {size(least)} free")


def _is_full(test: WriteTest | None) -> bool:
    full = test is not None and ("space" in test.problem or "quota" in test.problem.lower())
    return full or (test is not None and not test.problem and not test.missing and test.free < LEAST_FREE)


# Possible faults of a folder on a node: the test, the text for the user, and the advice.
_FOLDER: tuple[tuple[Callable[[WriteTest | None], bool], str, str], ...] = (
    (
        lambda test: test is None,
        "no answer about {path}",
        "look at that file system there: a mount may hang",
    ),
    (
        lambda test: test is not None and test.missing,
        "{path} is not there, or another folder",
        f"{_SHARED} (DAYLIGHT_HOME, or `checkpoints` of the service)",
    ),
    (
        _is_full,
        "{path} is full or nearly: {free} free{problem}",
        "free space (daylight du shows what takes it), or raise your quota there",
    ),
    (
        lambda test: test is not None and bool(test.problem),
        "{path} cannot be written{problem}",
        "let the user of the service write there, from the nodes as well",
    ),
)


def _service(probes: Sequence[NodeProbe]) -> PoolFinding:
    todo = "let the nodes reach this port of the service's machine, or set c.Daylight.launchers to ADDRESS:PORT"
    cut = [each for each in probes if all(test.problem for test in each.service)]
    if cut:
        tried = "; ".join(f"{test.url}: {test.problem}" for test in cut[0].service) or "it has announced no address"
        return red("service", f"{_names(cut)} cannot reach the service ({tried})", todo)
    used = dict.fromkeys(next(test.url for test in each.service if not test.problem) for each in probes)
    return PoolFinding(name="service", ok=True, says=f"reached at {', '.join(used)} from {_names(probes)}")


def _clocks(probes: Sequence[NodeProbe]) -> PoolFinding:
    silent = [each for each in probes if each.clock is None]
    if silent or not probes:
        return red("clocks", f"{_names(silent) or 'no node'}: no answer", "look at the findings above")
    says = ", ".join(f"{_name(each)} {_difference(each):+.2f} s" for each in probes)
    wrong = [each for each in probes if not -CLOCKS_S <= _least_difference(each) <= CLOCKS_S]
    todo = f"set the clock of {_names(wrong)} by NTP (chronyd, systemd-timesyncd)" if wrong else ""
    return PoolFinding(name="clocks", ok=not wrong, says=says, todo=todo)


def _difference(probe: NodeProbe) -> float:
    """Return how many seconds a node's clock is ahead of the service's; negative if it is behind.

    Returns 0 if the delay of the answer on its way is large enough to explain the difference.
    """
    return _least_difference(probe) and (probe.clock or 0.0) - (probe.sent + probe.received) / 2


def _least_difference(probe: NodeProbe) -> float:
    clock = probe.clock or 0.0
    return clock - min(max(clock, probe.sent), probe.received)


def _checkpoints(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> PoolFinding:
    if not setup.pool.settings.shared and "://" not in setup.checkpoints:
        says = f"{setup.checkpoints or 'folders of their owners'}: nodes of this pool do not see it (`shared` is no)"
        return red("checkpoints", says, _STORE)
    if "://" in setup.checkpoints:
        return _store(setup.checkpoints, {_name(each): each.checkpoints for each in probes})
    if not setup.checkpoints:
        return PoolFinding(name="checkpoints", ok=True, says="in their owners' folders, not checked")
    return _folder("checkpoints", setup.checkpoints, {_name(each): each.checkpoints for each in probes})


def _store(url: str, tests: Mapping[str, WriteTest | None]) -> PoolFinding:
    """Return the finding about an object store that all nodes must be able to write to and read.

    `tests` has the result of each node's test, None if the node sent none.
    """
    for node, test in tests.items():
        if test is None or test.problem:
            says = f"{node}: {url} cannot be used ({test.problem if test is not None else 'no answer'})"
            return red("checkpoints", says, _REACHED)
    return PoolFinding(name="checkpoints", ok=True, says=f"{url}: written and read by {', '.join(tests)}")


def _data(url: str, probes: Sequence[NodeProbe]) -> PoolFinding:
    for each in probes:
        if each.data is None:
            return red("data", f"{_name(each)}: {url}: no answer", _REACHED)
        if each.data.todo:
            return red("data", f"{_name(each)}: {each.data.says}", each.data.todo)
    told = (f"{_name(each)}: {each.data.says}" for each in probes if each.data)
    return PoolFinding(name="data", ok=True, says="; ".join(told))


def _devices(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> PoolFinding:
    terms = setup.terms
    wanted, wrong, todo = 1 if setup.gpus else setup.pool.settings.cpus_per_slot, [], ""
    for each in probes:
        if each.devices_problem or not each.kind:
            wrong.append(f"{_name(each)}: {each.devices_problem or 'no answer'}")
        elif setup.gpus and len(each.devices) < wanted:
            wrong.append(f"{_name(each)}: {terms.engine} granted 1 GPU, and {len(each.devices)} are seen")
            todo = terms.missing_gpus
        elif not setup.gpus and each.kind != "cpu":
            wrong.append(f"{_name(each)}: a slot is a CPU, and GPUs are seen ({', '.join(each.devices)})")
            todo = terms.unwanted_gpus
        elif not setup.gpus and each.cores < wanted:
            wrong.append(f"{_name(each)}: {terms.engine} granted {wanted} CPUs, and {each.cores} are seen")
            todo = terms.missing_cpus
    if wrong:
        return red("devices", "; ".join(wrong), todo or f"look at that node, or {terms.leave_out}")
    seen = ", ".join(
        f"{_name(each)} {', '.join(each.devices) if setup.gpus else count(each.cores, 'CPU')}" for each in probes
    )
    granted = "1 GPU" if setup.gpus else count(wanted, "CPU")
    return PoolFinding(name="devices", ok=True, says=f"{granted} granted to each, seen: {seen}")


def _host(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> PoolFinding:
    unknown = [each for each in probes if each.unresolved]
    if not unknown:
        return PoolFinding(name="host name", ok=True, says=f"{setup.host} is known to {_names(probes)}")
    says = f"{setup.host} is not known to {_names(unknown)}: {unknown[0].unresolved}"
    if any(all(test.problem for test in each.service) for each in unknown):
        return red("host name", says, "enter it into DNS or /etc/hosts, or set c.Daylight.launchers to ADDRESS:PORT")
    todo = "nothing: launchers use addresses; in DNS or /etc/hosts it would spare them a try"
    return PoolFinding(name="host name", ok=True, says=says, todo=todo)


def red(name: str, says: str, todo: str) -> PoolFinding:
    """Return a finding that says what is wrong and, in `todo`, what to change."""
    return PoolFinding(name=name, ok=False, says=says, todo=todo)


def _name(probe: NodeProbe) -> str:
    return probe.name or f"node {probe.node}"


def _names(probes: Sequence[NodeProbe]) -> str:
    return ", ".join(map(_name, probes))


def count(number: int, noun: str) -> str:
    """Return a number followed by a noun, in the plural unless the number is 1.

    Examples
    --------
    >>> count(2, "node")
    '2 nodes'
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
