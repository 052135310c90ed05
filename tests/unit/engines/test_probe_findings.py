"""Test the findings from the answers of probes: each problem comes with a remedy."""

from __future__ import annotations

import pytest

from kernel_backend.engines.probing.findings import ProbeSetup
from kernel_backend.engines.probing.network_finding import address_to_use
from kernel_backend.engines.slurm.findings import TERMS, ProbeJob, findings, not_started, partition
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.launch.nodes import Device, Reached
from kernel_backend.model.launch.probe import AllReduceResult, DataTest, NodeProbe, ServiceTest, Versions, WriteTest
from kernel_backend.model.resources import Node

VERSIONS = Versions(daylight="0.1.0", python="3.11.7", torch="2.6.0")
FREE = WriteTest(free=5 * 10**11)
URL = "http://10.0.0.9:7070"


def asked(*, nodes: int = 2, gpus: bool = False, checkpoints: str = "/shared/checkpoints", **settings) -> ProbeSetup:
    pool = Pool(name="gpu", settings=PoolSettings(engine="slurm", partition="a100", **settings))
    return ProbeSetup(pool, "/env/bin/python", VERSIONS, "/shared/home", checkpoints, "login", nodes, gpus, TERMS)


def node(number: int, **other) -> NodeProbe:
    """Return the answers of a healthy node, with these changes."""
    address = f"10.0.0.{number + 1}"
    good = {
        "name": f"n{number + 1}",
        "versions": VERSIONS,
        "home": FREE,
        "checkpoints": FREE,
        "service": (ServiceTest(URL, ""),),
        "kind": "cpu",
        "cores": 8,
        "addresses": (Device("eth0", address), Device("lo", "127.0.0.1")),
        "probe_port": 5000 if number == 0 else 0,
        "clock": 100.05,
        "sent": 100.0,
        "received": 100.1,
        "reached": (Reached("10.0.0.1", address),) if number else (),
        "all_reduce": AllReduceResult(seconds=0.064, size=64 * 10**6, own=address, device="eth0"),
    }
    return NodeProbe(node=number, **(good | other))


def red(request: ProbeSetup, *probes: NodeProbe, errors: str = "") -> PoolFinding:
    """Return the only finding with a problem."""
    (found,) = (each for each in findings(request, ProbeJob(1.0, errors), probes) if not each.ok)
    assert found.todo
    return found


def test_a_good_pool_is_all_green_and_in_order():
    found = findings(asked(), ProbeJob(0.84), [node(0), node(1)])
    assert all(each.ok and not each.todo for each in found)
    assert [(each.name, each.says) for each in found] == [
        ("versions", "Daylight 0.1.0, Python 3.11.7, torch 2.6.0 here and on n1, n2"),
        ("home", "/shared/home: written by n1, n2, 500.0 GB free"),
        ("service", f"reached at {URL} from n1, n2"),
        ("clocks", "n1 +0.00 s, n2 +0.00 s"),
        ("checkpoints", "/shared/checkpoints: written by n1, n2, 500.0 GB free"),
        ("devices", "1 CPU granted to each, seen: n1 8 CPUs, n2 8 CPUs"),
        ("host name", "login is known to n1, n2"),
        ("network", "all-reduce of 64 MB by gloo: 1.00 GB/s, 10.0.0.1 (eth0) - 10.0.0.2 (eth0)"),
        ("start", "0.8 s from srun to the first line of the probe"),
    ]


@pytest.mark.parametrize(
    ("name", "theirs", "says"),
    [
        ("daylight", "0.2.0", "n2 has Daylight 0.2.0, and here is 0.1.0"),
        ("python", "3.12.1", "n2 has Python 3.12.1, and here is 3.11.7"),
        ("torch", "", "n2 has torch not installed, and here is 2.6.0"),
    ],
)
def test_another_version_is_named_with_its_node(name, theirs, says):
    found = red(asked(), node(0), node(1, versions=VERSIONS.model_copy(update={name: theirs})))
    assert (found.name, found.says) == ("versions", says)


@pytest.mark.parametrize(
    ("test", "says", "todo"),
    [
        (WriteTest(missing=True), "n2: /shared/home is not there, or another folder", "DAYLIGHT_HOME"),
        (WriteTest(free=20_000_000), "n2: /shared/home is full or nearly: 20.0 MB free", "daylight du"),
        (
            WriteTest(problem="No space left on device"),
            "n2: /shared/home is full or nearly: 0 B free (No space left on device)",
            "daylight du",
        ),
        (
            WriteTest(problem="Read-only file system", free=10**12),
            "n2: /shared/home cannot be written (Read-only file system)",
            "let the user of the service write there",
        ),
        (None, "n2: no answer about /shared/home", "a mount may hang"),
    ],
)
def test_a_home_that_a_node_cannot_use(test, says, todo):
    found = red(asked(), node(0), node(1, home=test))
    assert (found.name, found.says) == ("home", says)
    assert todo in found.todo


def test_checkpoints_that_a_node_cannot_write_and_those_that_are_not_checked():
    found = red(asked(), node(0), node(1, checkpoints=WriteTest(problem="Permission denied", free=10**12)))
    assert (found.name, found.says) == ("checkpoints", "n2: /shared/checkpoints cannot be written (Permission denied)")
    found = findings(asked(checkpoints=""), ProbeJob(), [node(0, checkpoints=None), node(1, checkpoints=None)])
    (told,) = (each for each in found if each.name == "checkpoints")
    assert told.ok
    assert told.says.startswith("in their owners' folders")


def test_an_object_store_that_a_node_reaches_or_not():
    good, bad = WriteTest(), WriteTest(problem="Access Denied")
    (told,) = (
        each
        for each in findings(asked(checkpoints="s3://runs"), ProbeJob(), [node(0, checkpoints=good)])
        if each.name == "checkpoints"
    )
    assert (told.ok, told.says) == (True, "s3://runs: written and read by n1")
    found = red(asked(checkpoints="s3://runs"), node(0, checkpoints=good), node(1, checkpoints=bad))
    assert found.says == "n2: s3://runs cannot be used (Access Denied)"
    assert "credentials" in found.todo


def test_nodes_that_need_not_see_the_home_need_an_object_store():
    away = asked()._replace(pool=Pool(name="gpu", settings=PoolSettings(engine="slurm", shared=False)))
    found = red(away, node(0, home=WriteTest(missing=True)), node(1, home=WriteTest(missing=True)))
    assert found.name == "checkpoints"
    assert "s3://bucket/runs" in found.todo


def test_a_service_to_which_there_is_no_route():
    tried = (ServiceTest("http://login:7070", "its name has no address"), ServiceTest(URL, "No route to host"))
    found = red(asked(), node(0), node(1, service=tried))
    tries = f"http://login:7070: its name has no address; {URL}: No route to host"
    assert (found.name, found.says) == ("service", f"n2 cannot reach the service ({tries})")
    assert "c.Daylight.launchers" in found.todo
    assert "announced no address" in red(asked(), node(0, service=()), node(1)).says


@pytest.mark.parametrize(("clock", "says"), [(400.05, "+300.00"), (-199.95, "-300.00"), (101.2, "+1.15")])
def test_a_clock_that_differs(clock, says):
    found = red(asked(), node(0), node(1, clock=clock))
    assert (found.name, found.says) == ("clocks", f"n1 +0.00 s, n2 {says} s")
    assert found.todo.startswith("set the clock of n2 by NTP")


def test_an_answer_that_came_late_makes_no_clock_wrong():
    late = node(1, clock=100.0, received=104.0)
    assert all(each.ok for each in findings(asked(), ProbeJob(), [node(0), late]))


def test_gpus_that_slurm_granted_and_a_node_lacks():
    gpu = {"kind": "cuda", "devices": ("A100",)}
    found = red(asked(gpus=True), node(0, **gpu), node(1))
    assert (found.name, found.says) == ("devices", "n2: Slurm granted 1 GPU, and 0 are seen")
    assert "gres.conf" in found.todo


def test_cpus_that_a_node_lacks_and_gpus_where_slots_are_cpus():
    found = red(asked(cpus_per_slot=8), node(0), node(1, cores=2))
    assert (found.name, found.says) == ("devices", "n2: Slurm granted 8 CPUs, and 2 are seen")
    found = red(asked(), node(0), node(1, kind="cuda", devices=("A100",)))
    assert "a slot is a CPU, and GPUs are seen (A100)" in found.says
    assert "DAYLIGHT_SLOTS" in red(asked(), node(0), node(1, kind="", devices_problem="DAYLIGHT_SLOTS='x'")).says


def test_an_unknown_host_name_is_harmless_while_an_address_works():
    (told,) = (
        each
        for each in findings(asked(), ProbeJob(), [node(0), node(1, unresolved="Name or service not known")])
        if each.name == "host name"
    )
    assert told.ok
    assert told.says == "login is not known to n2: Name or service not known"
    assert told.todo.startswith("nothing: ")
    cut = node(1, unresolved="Name or service not known", service=(ServiceTest(URL, "timed out"),))
    found = findings(asked(), ProbeJob(), [node(0), cut])
    assert [each.name for each in found if not each.ok] == ["service", "host name"]


def test_nodes_on_two_networks():
    other = (Device("ib0", "10.1.0.2"), Device("lo", "127.0.0.1"))
    found = red(asked(), node(0), node(1, addresses=other, reached=(), all_reduce=None))
    says = "n2 (ib0 10.1.0.2, lo 127.0.0.1) cannot connect to n1: tried 10.0.0.1, 127.0.0.1, port 5000"
    assert (found.name, found.says) == ("network", says)
    assert "`interface`" in found.todo


def test_a_network_device_that_a_node_lacks():
    found = red(asked(interface="ib0"), node(0), node(1))
    assert found.says == "n1 has no address on ib0: it has eth0 10.0.0.1, lo 127.0.0.1"


def test_a_port_that_is_blocked_between_nodes():
    broken = AllReduceResult(problem="Connect timeout [10.0.0.1]:41000", own="10.0.0.2", device="eth0")
    found = red(asked(), node(0), node(1, all_reduce=broken))
    route = "10.0.0.1 (eth0) - 10.0.0.2 (eth0)"
    assert found.says == f"no all-reduce by gloo, {route}: n2: Connect timeout [10.0.0.1]:41000"
    assert "all TCP ports" in found.todo
    assert "n2: no end of the all-reduce" in red(asked(), node(0), node(1, all_reduce=None)).says
    absent = AllReduceResult(problem="No module named 'torch'", own="10.0.0.2")
    assert red(asked(), node(0), node(1, all_reduce=absent)).todo == "install torch there"


def test_the_address_is_the_first_that_the_other_node_reached():
    first, other = node(0), node(1, reached=(Reached("127.0.0.1", "127.0.0.1"), Reached("10.0.0.1", "10.0.0.2")))
    assert address_to_use((first, other), None) == "10.0.0.1"
    assert address_to_use((first, other), "lo") == "127.0.0.1"
    assert address_to_use((first, other), "ib0") == ""


def test_a_node_that_does_not_answer():
    found = red(asked(), node(0), errors="execve(): /env/bin/python: No such file or directory")
    assert found.says == "1 of 2 nodes did not answer, only n1 did: /env/bin/python is not there on a node"
    found = red(asked(), node(0), errors="/env/bin/python: No module named kernel_backend; task 1: Exited")
    assert found.says.endswith("/env/bin/python on a node: No module named kernel_backend")


@pytest.mark.parametrize(
    ("course", "says", "todo"),
    [
        (ProbeJob(errors="Requested nodes are busy", reason="Priority"), "(Slurm: Priority)", "shows idle nodes"),
        (ProbeJob(errors="", reason=""), "no 2 nodes of a100 became free within 60 s: the rest", "sinfo -p a100"),
        (ProbeJob(reason="PartitionNodeLimit"), "Slurm: PartitionNodeLimit", "allows fewer nodes"),
        (ProbeJob(errors="Invalid account or account/partition"), "Slurm: Invalid account", "change `account`"),
        (ProbeJob(errors="unrecognized option '--foo'"), "Slurm: unrecognized option", "change `extra`"),
        (
            ProbeJob(errors="execve(): /env/bin/python: No such file or directory"),
            "is not there on a node",
            "all nodes see",
        ),
    ],
)
def test_probes_that_did_not_start(course, says, todo):
    found = not_started(asked(), course, 60.2)
    assert (found.name, found.ok) == ("probe", False)
    assert says in found.says
    assert todo in found.todo


def test_the_partition_is_told_with_the_states_of_its_nodes():
    pool = asked().pool
    up = Node(name="n1", kind="cuda", address="n1", slots=4, cores=64, devices=("a100",) * 4, pool="gpu")
    down = up.model_copy(update={"name": "n2", "healthy": False})
    found = partition(pool, [up, down], {"idle": 1, "down*": 1})
    assert (found.ok, found.says) == (True, "a100: 2 nodes (1 idle, 1 down*), 8 slots (GPUs, a100)")
    assert "scontrol show node" in found.todo
    assert not partition(pool, [down], {"down*": 1}).ok
    assert not partition(pool, [], {}).ok
    none = up.model_copy(update={"slots": 0, "devices": (), "kind": "cpu"})
    assert partition(pool, [none], {"idle": 1}).todo == "lower `cpus_per_slot` of the pool"


def test_remote_data_is_told_for_each_node_and_what_to_do_where_it_cannot_be_read():
    request = asked()._replace(data="s3://b/train")
    good = DataTest(says="s3://b/train: 1 object, 9 B; they arrive at 9 B/s (latency 20 ms)")
    bad = DataTest(says="s3://b/train/a cannot be read: this machine has no credentials", todo="set them here")
    found = findings(request, ProbeJob(0.84), [node(0, data=good), node(1, data=good)])
    assert [each.says for each in found if each.name == "data"] == [f"n1: {good.says}; n2: {good.says}"]
    assert red(request, node(0, data=good), node(1, data=bad)) == PoolFinding(
        name="data", ok=False, says=f"n2: {bad.says}", todo="set them here"
    )
    assert red(request, node(0, data=good), node(1)).says == "n2: s3://b/train: no answer"
    assert "data" not in {each.name for each in findings(asked(), ProbeJob(0.84), [node(0), node(1)])}
