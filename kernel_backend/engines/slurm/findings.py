"""Derive the finding of each check of a pool from what the probe programs have answered: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.engines.slurm.network_finding import network
from kernel_backend.engines.slurm.parse import never, refusal_advice
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.launch.probe import NodeProbe, Versions, WriteTest
from kernel_backend.model.resources import Node
from kernel_backend.model.sizes import size

LEAST_FREE = 10**9  # free bytes below which a finding warns, as checkpoints and logs would soon use them up
CLOCKS_S = 1.0  # difference allowed between the clocks of a node and the service
_DOWN = "`scontrol show node NAME` says why a node is down"
_ENVIRONMENT = "keep one environment on a file system that all nodes see, or install the same versions there"
_STORE = 'keep checkpoints in an object store: c.Daylight.checkpoints = "s3://bucket/runs"'
_REACHED = "let the nodes reach it, with the credentials in the service's environment variables or in files there"
_SHARED = "put it on a file system that all nodes see at the same path"


class ProbeSetup(NamedTuple):
    """Settings of the probe programs, with the versions and names of the service's own machine."""

    pool: Pool
    python: str
    versions: Versions  # versions in that interpreter on the service's machine
    home: str
    checkpoints: str  # folder or URL; "": each owner has their own
    host: str  # host name of the service's machine
    nodes: int
    gpus: bool  # whether a slot is a GPU; each node was asked for one slot


class ProbeJob(NamedTuple):
    """Result of the Slurm job of the probe programs."""

    started: float | None = None  # seconds from the start of srun to its first line; None without a line
    errors: str = ""  # error output of srun and the probes
    reason: str = ""  # Slurm's last reason why the job was pending


def partition(pool: Pool, nodes: Sequence[Node], states: Mapping[str, int]) -> PoolFinding:
    """Return the finding about the partition: its nodes, their states and slots."""
    name = pool.settings.partition or "default partition"
    if not nodes:
        todo = "change `partition` of the pool: `sinfo -s` lists them"
        return PoolFinding(name="partition", ok=False, says=f"{name}: Slurm knows no nodes of it", todo=todo)
    gpus, slots = any(node.kind != "cpu" for node in nodes), sum(node.slots for node in nodes)
    counted = ", ".join(f"{count} {state}" for state, count in states.items())
    of = f"GPUs, {', '.join(sorted({each for node in nodes for each in node.devices}))}" if gpus else "CPUs"
    says = f"{name}: {_count(len(nodes), 'node')} ({counted}), {_count(slots, 'slot')} ({of})"
    if not slots:
        settings = pool.settings
        todo = "change `gpus` or `gpu_type`" if settings.gpus or settings.gpu_type else "lower `cpus_per_slot`"
        return PoolFinding(name="partition", ok=False, says=says, todo=f"{todo} of the pool")
    usable = [node for node in nodes if node.healthy]
    return PoolFinding(name="partition", ok=bool(usable), says=says, todo="" if len(usable) == len(nodes) else _DOWN)


def not_started(setup: ProbeSetup, job: ProbeJob, waited: float) -> PoolFinding:
    """Return the finding that the probes did not start, and why: no free node, a refused job, or no interpreter.

    `waited` is the number of seconds that the job was pending.
    """
    where = setup.pool.settings.partition or "the default partition"
    if never(job.reason):
        return _red("probe", f"Slurm: {job.reason}", never(job.reason))
    if "are busy" in job.errors or not job.errors:
        why = f" (Slurm: {job.reason})" if job.reason not in ("", "None") else ""
        nodes = "no node" if setup.nodes == 1 else f"no {setup.nodes} nodes"
        says = f"{nodes} of {where} became free within {waited:.0f} s{why}: the rest was not checked"
        free = f"-p {where}" if setup.pool.settings.partition else ""
        return _red("probe", says, f"try again when `sinfo {free}`".rstrip(" `") + "` shows idle nodes")
    if (failed := _failed(setup, job.errors)) is not None:
        return failed
    return _red("probe", f"Slurm: {job.errors}", refusal_advice(job.errors))


def findings(setup: ProbeSetup, job: ProbeJob, probes: Sequence[NodeProbe]) -> list[PoolFinding]:
    """Return the findings from what the probes have answered, in the order in which a training depends on them."""
    found = list(_unanswered(setup, job, probes))
    found.append(_versions(setup, probes))
    found.append(_home(setup, probes))
    found.append(_service(probes))
    found.append(_clocks(probes))
    found.append(_checkpoints(setup, probes))
    found.append(_devices(setup, probes))
    found.append(_host(setup, probes))
    if setup.nodes > 1:
        found += [network(probes, setup.pool.settings.interface)] if len(probes) == setup.nodes else []
    else:
        found.append(PoolFinding(name="network", ok=True, says="not checked: the pool has one node to use"))
    says = f"{job.started or 0.0:.1f} s from srun to the first line of the probe"
    return [*found, PoolFinding(name="start", ok=True, says=says)]


def _unanswered(setup: ProbeSetup, job: ProbeJob, probes: Sequence[NodeProbe]) -> Iterator[PoolFinding]:
    if len(probes) < setup.nodes:
        lacking = setup.nodes - len(probes)
        there = f", only {_names(probes)} did" if probes else ""
        failed = _failed(setup, job.errors)
        says = f"{lacking} of {_count(setup.nodes, 'node')} did not answer{there}"
        why = failed.says if failed is not None else job.errors
        todo = failed.todo if failed is not None else "look at that node, or leave it out: `--exclude` in `extra`"
        yield _red("probe", f"{says}: {why}" if why else says, todo)


def _failed(setup: ProbeSetup, errors: str) -> PoolFinding | None:
    """Return the finding that a node could not run the probe's interpreter; None if `errors` show another error."""
    if "execve" in errors or "No such file or directory" in errors:
        return _red("probe", f"{setup.python} is not there on a node", _ENVIRONMENT)
    if "No module named" in errors:
        missing = errors[errors.index("No module named") :].partition(";")[0].strip()
        return _red("probe", f"{setup.python} on a node: {missing}", _ENVIRONMENT)
    return None


def _versions(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> PoolFinding:
    ours = setup.versions
    labels = {"daylight": "Daylight", "python": "Python", "torch": "torch"}
    others = [
        f"{_name(each)} has {label} {theirs or 'not installed'}, and here is {own or 'none'}"
        for each in probes
        for name, label in labels.items()
        if each.versions is not None and (theirs := getattr(each.versions, name)) != (own := getattr(ours, name))
    ]
    if others:
        return _red("versions", "; ".join(others), _ENVIRONMENT)
    says = f"Daylight {ours.daylight}, Python {ours.python}, torch {ours.torch or 'none'} here and on {_names(probes)}"
    todo = "" if ours.torch else f"install torch for {setup.python}"
    return PoolFinding(name="versions", ok=bool(ours.torch), says=says, todo=todo)


def _home(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> PoolFinding:
    if not setup.pool.settings.shared:
        return PoolFinding(name="home", ok=True, says="not needed: files go through the service (`shared` is no)")
    return _folder("home", setup.home, {_name(each): each.home for each in probes})


def _folder(name: str, path: str, tests: Mapping[str, WriteTest | None]) -> PoolFinding:
    """Return the finding about a folder that all nodes must see and be able to write; `tests` are by node."""
    for is_so, says, todo in _FOLDER:
        if nodes := [node for node, test in tests.items() if is_so(test)]:
            first = tests[nodes[0]] or WriteTest()
            text = says.format(path=path, problem=first.problem and f" ({first.problem})", free=size(first.free))
            return _red(name, f"{', '.join(nodes)}: {text}", todo)
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
        return _red("service", f"{_names(cut)} cannot reach the service ({tried})", todo)
    used = dict.fromkeys(next(test.url for test in each.service if not test.problem) for each in probes)
    return PoolFinding(name="service", ok=True, says=f"reached at {', '.join(used)} from {_names(probes)}")


def _clocks(probes: Sequence[NodeProbe]) -> PoolFinding:
    silent = [each for each in probes if each.clock is None]
    if silent or not probes:
        return _red("clocks", f"{_names(silent) or 'no node'}: no answer", "look at the findings above")
    says = ", ".join(f"{_name(each)} {_difference(each):+.2f} s" for each in probes)
    wrong = [each for each in probes if not -CLOCKS_S <= _least_difference(each) <= CLOCKS_S]
    todo = f"set the clock of {_names(wrong)} by NTP (chronyd, systemd-timesyncd)" if wrong else ""
    return PoolFinding(name="clocks", ok=not wrong, says=says, todo=todo)


def _difference(probe: NodeProbe) -> float:
    """Return how many seconds a node's clock is ahead; 0 if the time for transferring its answer may explain that."""
    return _least_difference(probe) and (probe.clock or 0.0) - (probe.sent + probe.received) / 2


def _least_difference(probe: NodeProbe) -> float:
    clock = probe.clock or 0.0
    return clock - min(max(clock, probe.sent), probe.received)


def _checkpoints(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> PoolFinding:
    if not setup.pool.settings.shared and "://" not in setup.checkpoints:
        says = f"{setup.checkpoints or 'folders of their owners'}: nodes of this pool do not see it (`shared` is no)"
        return _red("checkpoints", says, _STORE)
    if "://" in setup.checkpoints:
        return _store(setup.checkpoints, {_name(each): each.checkpoints for each in probes})
    if not setup.checkpoints:
        return PoolFinding(name="checkpoints", ok=True, says="in their owners' folders, not checked")
    return _folder("checkpoints", setup.checkpoints, {_name(each): each.checkpoints for each in probes})


def _store(url: str, tests: Mapping[str, WriteTest | None]) -> PoolFinding:
    """Return the finding about an object store that all nodes must be able to write and read; `tests` are by node."""
    for node, test in tests.items():
        if test is None or test.problem:
            says = f"{node}: {url} cannot be used ({test.problem if test is not None else 'no answer'})"
            return _red("checkpoints", says, _REACHED)
    return PoolFinding(name="checkpoints", ok=True, says=f"{url}: written and read by {', '.join(tests)}")


def _devices(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> PoolFinding:
    wanted, wrong, todo = 1 if setup.gpus else setup.pool.settings.cpus_per_slot, [], ""
    for each in probes:
        if each.devices_problem or not each.kind:
            wrong.append(f"{_name(each)}: {each.devices_problem or 'no answer'}")
        elif setup.gpus and len(each.devices) < wanted:
            wrong.append(f"{_name(each)}: Slurm granted 1 GPU, and {len(each.devices)} are seen")
            todo = "look at nvidia-smi and gres.conf there, or leave the node out: `--exclude` in `extra`"
        elif not setup.gpus and each.kind != "cpu":
            wrong.append(f"{_name(each)}: a slot is a CPU, and GPUs are seen ({', '.join(each.devices)})")
            todo = "set `gpus` of the pool, or choose nodes without GPUs by `partition` or `constraint`"
        elif not setup.gpus and each.cores < wanted:
            wrong.append(f"{_name(each)}: Slurm granted {wanted} CPUs, and {each.cores} are seen")
            todo = "look at CPUs= of the node in slurm.conf, or leave it out: `--exclude` in `extra`"
    if wrong:
        return _red("devices", "; ".join(wrong), todo or "look at that node, or leave it out: `--exclude` in `extra`")
    seen = ", ".join(
        f"{_name(each)} {', '.join(each.devices) if setup.gpus else _count(each.cores, 'CPU')}" for each in probes
    )
    granted = "1 GPU" if setup.gpus else _count(wanted, "CPU")
    return PoolFinding(name="devices", ok=True, says=f"{granted} granted to each, seen: {seen}")


def _host(setup: ProbeSetup, probes: Sequence[NodeProbe]) -> PoolFinding:
    unknown = [each for each in probes if each.unresolved]
    if not unknown:
        return PoolFinding(name="host name", ok=True, says=f"{setup.host} is known to {_names(probes)}")
    says = f"{setup.host} is not known to {_names(unknown)}: {unknown[0].unresolved}"
    if any(all(test.problem for test in each.service) for each in unknown):
        return _red("host name", says, "enter it into DNS or /etc/hosts, or set c.Daylight.launchers to ADDRESS:PORT")
    todo = "nothing: launchers use addresses; in DNS or /etc/hosts it would spare them a try"
    return PoolFinding(name="host name", ok=True, says=says, todo=todo)


def _red(name: str, says: str, todo: str) -> PoolFinding:
    return PoolFinding(name=name, ok=False, says=says, todo=todo)


def _name(probe: NodeProbe) -> str:
    return probe.name or f"node {probe.node}"


def _names(probes: Sequence[NodeProbe]) -> str:
    return ", ".join(map(_name, probes))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
