"""Test the decisions of a cluster setup: files, steps, and problems of unsuitable machines."""

from __future__ import annotations

import errno
import socket

import pytest

from kernel_backend.cluster_setup.advice import advise
from kernel_backend.cluster_setup.cluster import Cluster, ClusterNode, Member, cgroup_conf, gres_conf, slurm_conf
from kernel_backend.cluster_setup.invitation import (
    InvitationRefused,
    StateAnswer,
    Token,
    read_token,
    unreachable,
)
from kernel_backend.cluster_setup.machine import Hardware, Machine, distribution, gpu_types
from kernel_backend.cluster_setup.member import explain
from kernel_backend.cluster_setup.plan import MEMBER, MUNGE_KEY, head_steps, leave_steps, member_steps
from kernel_backend.cluster_setup.problems import (
    Problem,
    before_setup,
    between,
    choose_address,
    different_users,
    install_command,
)
from kernel_backend.cluster_setup.status import different_versions, node_todo, parse_nodes
from kernel_backend.cluster_setup.steps import Remove, Start, Write

HEAD = Machine(
    name="n1",
    addresses=("192.0.2.1", "198.51.100.1"),
    root=True,
    systemd=True,
    cgroups=True,
    distribution=("debian",),
    programs=("slurmctld", "slurmd", "munged", "scontrol", "sinfo", "openssl"),
    slurm="22.05.8",
    accounts={"slurm": 64030, "munge": 105},
    users={"ada": 1000},
    hardware=Hardware(cpus=8, memory_mib=10000, gpus={"a100": 2, "v100": 1}),
)
OTHER = HEAD.model_copy(update={"name": "n2", "hardware": Hardware(cpus=4, memory_mib=2000)})
CLUSTER = Cluster(
    name="lab", head="n1", nodes=(ClusterNode(name="n1", address="192.0.2.1", hardware=HEAD.hardware),)
).with_node(ClusterNode(name="n2", address="192.0.2.2", hardware=OTHER.hardware))


def test_slurm_conf_has_all_nodes_by_address_so_that_no_name_needs_to_resolve():
    text = slurm_conf(CLUSTER)
    assert "SlurmctldHost=n1(192.0.2.1)" in text
    assert "NodeName=n1 NodeAddr=192.0.2.1 CPUs=8 RealMemory=9700 Gres=gpu:a100:2,gpu:v100:1 State=UNKNOWN" in text
    assert "NodeName=n2 NodeAddr=192.0.2.2 CPUs=4 RealMemory=1940 State=UNKNOWN" in text
    assert "proctrack/linuxproc" in text
    assert "CgroupPlugin=cgroup/v1" in cgroup_conf(CLUSTER)


def test_cgroups_confine_jobs_where_they_are_chosen():
    confined = CLUSTER.model_copy(update={"cgroups": True})
    assert "TaskPlugin=task/affinity,task/cgroup" in slurm_conf(confined)
    assert "ConstrainDevices=yes" in cgroup_conf(confined)


def test_gres_conf_names_the_device_files_of_each_type():
    assert gres_conf(CLUSTER).splitlines()[1:] == [
        "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia[0-1]",
        "NodeName=n1 Name=gpu Type=v100 File=/dev/nvidia2",
    ]


def test_a_node_that_joins_again_replaces_its_line_and_one_that_left_has_none():
    again = CLUSTER.with_node(ClusterNode(name="n2", address="192.0.2.9", hardware=OTHER.hardware))
    assert [(node.name, node.address) for node in again.nodes] == [("n1", "192.0.2.1"), ("n2", "192.0.2.9")]
    assert [node.name for node in again.without_node("n2").nodes] == ["n1"]


def test_steps_adapt_the_units_of_systemd_only_where_it_is_process_1():
    member = Member(name="lab", head="n1", address="192.0.2.1")
    for steps in (head_steps(CLUSTER, b"key", True), member_steps(member, b"key", True)):
        assert any("slurmd.service.d" in str(step) for step in steps)
    for steps in (head_steps(CLUSTER, b"key", False), member_steps(member, b"key", False)):
        assert not any("service.d" in str(step) for step in steps)
    started = [step for step in member_steps(member, b"key", False) if isinstance(step, Start)]
    assert started[-1].plain == ("/usr/sbin/slurmd", "--conf-server", "192.0.2.1:6817")


def test_the_key_is_private_and_no_dry_run_prints_it():
    keys = [step for step in head_steps(CLUSTER, b"topsecret", True) if isinstance(step, Write) and step.secret]
    assert [(key.path, key.mode, key.owner, key.backup) for key in keys] == [(MUNGE_KEY, 0o600, "munge", True)]
    assert not any("topsecret" in str(step) for step in head_steps(CLUSTER, b"topsecret", True))


def test_leaving_removes_what_joining_wrote():
    removed = {step.path for step in leave_steps(head=False) if isinstance(step, Remove)}
    assert {MEMBER, MUNGE_KEY} <= removed
    assert MUNGE_KEY not in {step.path for step in leave_steps(head=True) if isinstance(step, Remove)}


@pytest.mark.parametrize(
    ("change", "says", "todo"),
    [
        ({"root": False}, "only root", "sudo"),
        ({"programs": ("munged",)}, "slurmctld, slurmd, scontrol, sinfo, openssl not found", "apt-get install"),
        ({"programs": (), "distribution": ("rocky", "rhel")}, "not found", "epel-release"),
        ({"programs": (), "distribution": ("void",)}, "not found", "install Slurm and munge"),
        ({"name": "localhost"}, "no name of its own", "hostnamectl"),
        ({"addresses": ()}, "no network", "configure"),
    ],
)
def test_a_machine_that_cannot_be_set_up_says_what_to_change(change, says, todo):
    (found,) = before_setup(HEAD.model_copy(update=change), True, None, False)
    assert says in found.says
    assert todo in found.todo


def test_a_slurm_conf_of_others_is_refused_unless_forced():
    assert before_setup(HEAD, True, slurm_conf(CLUSTER).encode(), False) == []
    (found,) = before_setup(HEAD, True, b"ClusterName=other", False)
    assert "--force" in found.todo
    assert before_setup(HEAD, True, b"ClusterName=other", True) == []


@pytest.mark.parametrize(
    ("change", "skew", "says"),
    [
        ({}, 0.0, ""),
        ({}, -59.0, ""),
        ({}, 312.0, "this clock is 312 s ahead of that of n1"),
        ({}, -90.0, "this clock is 90 s behind that of n1"),
        ({"slurm": "22.05.3"}, 0.0, ""),
        ({"slurm": "21.08.5"}, 0.0, "Slurm 21.08.5 here, 22.05.8 on n1"),
        ({"accounts": {"slurm": 990}}, 0.0, "user slurm is 990 here, 64030 on n1"),
        ({"name": "n1"}, 0.0, "n1 is the name of another machine"),
    ],
)
def test_a_machine_that_does_not_fit_its_head_is_refused_with_the_reason(change, skew, says):
    found = between(HEAD, OTHER.model_copy(update=change), CLUSTER.nodes, "192.0.2.2", skew)
    assert [problem.says[: len(says)] for problem in found] == ([says] if says else [])


def test_a_second_machine_of_the_same_name_is_refused():
    (found,) = between(HEAD, OTHER, CLUSTER.nodes, "192.0.2.7", 0.0)
    assert "daylight cluster remove n2" in found.todo


def test_people_who_lack_an_account_on_the_new_machine_are_told():
    assert different_users(HEAD, OTHER) == []
    assert "useradd -u 1000 ada" in different_users(HEAD, OTHER.model_copy(update={"users": {}}))[0]
    assert "ada is 1001 here" in different_users(HEAD, OTHER.model_copy(update={"users": {"ada": 1001}}))[0]


def test_the_address_is_that_of_the_default_route_unless_another_is_wanted():
    assert choose_address(HEAD.addresses, None, "198.51.100.1") == "198.51.100.1"
    assert choose_address(HEAD.addresses, None, "") == "192.0.2.1"
    assert choose_address(HEAD.addresses, "192.0.2.1", "198.51.100.1") == "192.0.2.1"
    assert isinstance(choose_address(HEAD.addresses, "203.0.113.1", ""), Problem)


def test_the_packages_are_those_of_the_distribution():
    assert install_command(HEAD, False).endswith(" slurmd slurm-client munge")
    fedora = HEAD.model_copy(update={"distribution": distribution('ID=rocky\nID_LIKE="rhel centos fedora"\n')})
    assert install_command(fedora, True).startswith("dnf install -y slurm-slurmctld ")


def test_gpus_are_counted_by_type():
    texts = ["Model: \t\t NVIDIA H100 80GB HBM3\n", "Model: NVIDIA A100-SXM4-80GB\n", "Model: NVIDIA A100-SXM4-80GB\n"]
    assert gpu_types(texts) == {"h100": 1, "a100": 2}
    assert gpu_types(["Model: NVIDIA RTX A6000\n", "Model: Tesla V100-SXM2\n", ""]) == {
        "rtx_a6000": 1,
        "v100": 1,
        "gpu": 1,
    }


@pytest.mark.parametrize(
    ("line", "todo"),
    [
        ("[2026] error: Munge decode failed: Rewound credential", "clocks"),
        ("[2026] error: Munge decode failed: Expired credential", "clocks"),
        ("[2026] error: Munge decode failed: Invalid credential", "munge key"),
        ("[2026] error: bind: Address already in use", "port"),
        ("[2026] fatal: Unable to determine this slurmd's NodeName", "host name"),
        ("[2026] error: Unable to contact slurm controller (connect failure)", "head"),
        ("[2026] error: connect: No route to host", "firewall"),
        ("[2026] error: Incompatible versions of client and server code", "release"),
    ],
)
def test_sentences_of_the_logs_become_advice(line, todo):
    advice = advise(f"{line}\n[2026] slurmd started\n")
    assert advice is not None
    assert todo in advice[1]


def test_a_join_that_does_not_become_idle_says_why():
    blocked = StateAnswer(state="idle*", unreachable="timed out")
    assert "open it in this firewall" in explain("n2", "n1", blocked, "")
    assert "clocks" in explain("n2", "n1", blocked, "[2026] error: Munge decode failed: Rewound credential")
    assert "daylight cluster status" in explain("n2", "n1", StateAnswer(state="down"), "all is well")


def test_status_reads_nodes_and_says_what_to_do():
    text = "n1|idle|8|9700|gpu:a100:2|22.05.8|none\nn2|down*|4|1940|(null)|21.08.5|Not responding\n"
    first, second = parse_nodes(text + text)
    assert (first.works, first.gpus, first.reason, node_todo(first, "n1")) == (True, "gpu:a100:2", "", "")
    assert (second.works, second.gpus, second.reason) == (False, "", "Not responding")
    assert "daylight cluster start on n2" in node_todo(second, "n1")
    assert "state=resume" in node_todo(second._replace(state="drained"), "n1")
    assert different_versions([first, second]) == "21.08.5, 22.05.8"


def test_a_token_survives_its_text_and_a_cut_one_is_refused():
    token = Token(bytes(range(16)), bytes(range(32)))
    assert read_token(str(token)) == token
    for text in (str(token)[:-3], "", "not base64 !", str(token) + "AAAA"):
        with pytest.raises(InvitationRefused, match="copy it whole"):
            read_token(text)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (socket.gaierror(-2, "Name or service not known"), "head9 does not resolve"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "nothing listens"),
        (TimeoutError(errno.ETIMEDOUT, "timed out"), "firewall"),
    ],
)
def test_a_head_that_cannot_be_reached_says_what_to_change(error, says):
    assert says in unreachable("head9", 6816, error)
