"""Test assignments and environments of ranks, outcomes of gangs, the spool, and the launcher's lock."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys

import pytest
from torch.distributed import TCPStore

from kernel_backend.launch import horovod, torch
from kernel_backend.launch.folder import AttemptFolder, LauncherRecord
from kernel_backend.launch.forkserver import cache_key
from kernel_backend.launch.gang_outcome import gang_outcome, lost
from kernel_backend.launch.ports import reserved_port
from kernel_backend.launch.rendezvous import RendezvousInfo, interface_of, process_env, rank_assignments
from kernel_backend.launch.spool import SpoolReader
from kernel_backend.model.launch.allocator import allocator_env
from kernel_backend.model.launch.launch_spec import OF_RANKS
from kernel_backend.model.launch.numerics import numerics_env
from kernel_backend.model.reports import Report
from kernel_backend.model.trial import Failure
from tests.support.builders import share, user_error
from tests.support.spools import read_after

MEETING = RendezvousInfo(address="127.0.0.1", interface="lo", torch_port=4000, horovod_port=5000)
UNEVEN = (share((0, 1, 2), "a"), share((1,), "b"))
LOST_PEER = {"type": "HorovodInternalError", "message": "connection closed by peer", "consequence": True}


def test_ranks_are_counted_node_by_node():
    found = rank_assignments(UNEVEN)
    assert [(s.rank, s.node, s.local_rank, s.local_size, s.slot) for s in found] == [
        (0, "a", 0, 3, 0),
        (1, "a", 1, 3, 1),
        (2, "a", 2, 3, 2),
        (3, "b", 0, 1, 1),
    ]
    assert {s.size for s in found} == {4}


def test_horovods_own_assignment_agrees_with_ours():
    hosts = pytest.importorskip("horovod.runner.common.util.hosts")
    gloo_run = pytest.importorskip("horovod.runner.gloo_run")
    theirs = hosts.get_host_assignments(hosts.parse_hosts("a:3,b:1"), 4)
    for slot, assignment in zip(theirs, rank_assignments(UNEVEN), strict=True):
        assert gloo_run.create_slot_env_vars(slot).items() <= horovod.env(assignment, MEETING).items()


def test_horovods_fusion_is_off_since_it_depends_on_timing():
    assert horovod.env(rank_assignments(UNEVEN)[0], MEETING)["HOROVOD_FUSION_THRESHOLD"] == "0"


def test_horovods_cycle_is_the_one_of_the_users_environment():
    assert "HOROVOD_CYCLE_TIME" not in horovod.env(rank_assignments(UNEVEN)[0], MEETING)


def test_without_a_rendezvous_there_is_nothing_for_horovod():
    assert horovod.env(rank_assignments(UNEVEN)[0], MEETING._replace(horovod_port=None)) == {}


def test_nccl_takes_the_device_by_which_nodes_met_and_its_own_choice_on_one_machine():
    assert torch.env(rank_assignments(UNEVEN)[0], MEETING)["NCCL_SOCKET_IFNAME"] == "lo"
    assert "NCCL_SOCKET_IFNAME" not in torch.env(rank_assignments((share(),))[0], MEETING)


def test_torch_finds_its_peers_by_the_usual_variables():
    assert torch.env(rank_assignments(UNEVEN)[3], MEETING) == {
        "NCCL_SOCKET_IFNAME": "lo",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "4000",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def test_a_rank_sees_only_its_own_device(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpu = rank_assignments((share((2, 3), kind="cuda"),))[1]
    assert process_env({}, gpu, {})["CUDA_VISIBLE_DEVICES"] == "3"
    assert "CUDA_VISIBLE_DEVICES" not in process_env({}, rank_assignments(UNEVEN)[0], {})


def test_slots_are_those_devices_that_the_service_was_limited_to(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert process_env({}, rank_assignments((share((0, 1), kind="cuda"),))[1], {})["CUDA_VISIBLE_DEVICES"] == "7"


def test_hash_seed_and_threads_are_the_same_for_every_rank():
    env = process_env({"OMP_NUM_THREADS": "64", "KEEP": "me"}, rank_assignments(UNEVEN)[0], numerics_env("host", 2))
    assert (env["PYTHONHASHSEED"], env["OMP_NUM_THREADS"], env["KEEP"]) == ("0", "2", "me")


def test_memory_that_a_step_frees_is_not_given_back_to_the_system():
    step = "for _ in range(20): blocks = [bytearray(8 << 20) for _ in range(5)]; del blocks"
    faults = "import resource; faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt"
    program = f"{faults}\n{step}\nbefore = faults()\n{step}\nprint(faults() - before)"
    without = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    default, ours = (
        int(subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True).stdout)
        for env in (without, {**without, **allocator_env(without)})
    )
    assert default > 10 * 5 * 2048  # pages of 4 kB, touched anew in most rounds
    assert ours < 2048


def test_a_memory_setting_of_the_user_is_kept():
    assert "MALLOC_TRIM_THRESHOLD_" not in allocator_env({"MALLOC_TRIM_THRESHOLD_": "1000"})


def test_a_reserved_port_is_taken_by_nobody_but_the_rank_whose_store_listens_there():
    with reserved_port("127.0.0.1") as held:
        port = held.getsockname()[1]
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        store = TCPStore("127.0.0.1", port, 1, True)
        store.set("who", "rank 0")
        assert store.get("who") == b"rank 0"


def test_loopback_only_on_one_machine():
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("10.0.0.7") is None


@pytest.mark.parametrize(("codes", "outcome"), [([0, 0], "ok"), ([85, 85], "released"), ([85, 0], "released")])
def test_a_quiet_end(codes, outcome):
    assert gang_outcome(codes, {}, frozenset(), 1.0).outcome == outcome


def test_the_first_failure_shown_is_never_a_lost_peer():
    failures = {0: Failure(rank=0, at=1.0, **LOST_PEER), 1: user_error(rank=1, at=2.0)}
    assert gang_outcome([1, 1], failures, frozenset(), 3.0).failure == failures[1]


def test_a_kill_is_named_when_its_peer_only_lost_it():
    failures = {0: Failure(rank=0, at=1.0, **LOST_PEER)}
    failure = gang_outcome([1, -9], failures, frozenset(), 3.0).failure
    assert failure is not None
    assert failure.message == "rank 1 was ended by SIGKILL (kill -9, or out of memory)"


def test_a_rank_that_we_killed_is_not_to_blame():
    failure = gang_outcome([-9, -11], {}, frozenset({0}), 3.0).failure
    assert failure is not None
    assert (failure.rank, failure.type) == (1, "SIGSEGV")


def test_a_rank_that_left_early_is_to_blame_for_its_peers():
    failures = {0: Failure(rank=0, at=1.0, **LOST_PEER)}
    failure = gang_outcome([1, 0], failures, frozenset(), 3.0).failure
    assert failure is not None
    assert failure.message == "rank 1 exited before the others had finished"


def test_an_exit_code_is_told():
    failure = gang_outcome([3], {}, frozenset(), 3.0).failure
    assert failure is not None
    assert failure.message == "rank 0 exited with code 3"


def test_a_taken_port_is_nobodys_fault():
    taken = Failure(
        rank=0, type="DistNetworkError", message="bind: EADDRINUSE, Address already in use", consequence=True
    )
    assert gang_outcome([1], {0: taken}, frozenset(), 3.0).outcome == "lost"


def test_a_gang_whose_forkserver_died_is_lost_and_failed_nowhere():
    result = lost(gang_outcome([0, -9], {}, frozenset(), 3.0), "the forkserver ended, and rank 1 with it")
    assert (result.outcome, result.exit_codes, result.ended_at) == ("lost", (0, -9), 3.0)
    assert result.failure is not None
    assert (result.failure.type, result.failure.consequence) == ("ForkserverLost", True)


@pytest.mark.parametrize(
    "name",
    ["OMP_NUM_THREADS", "MKL_CBWR", "ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "PYTHONHASHSEED"],
)
def test_what_must_be_there_before_torch_is_imported_makes_another_forkserver(name):
    assert cache_key.key({}) != cache_key.key({name: "1"}) != cache_key.key({name: "2"})


@pytest.mark.parametrize("name", ["RANK", "MASTER_PORT", "HOROVOD_RANK", "CUDA_VISIBLE_DEVICES", "DAYLIGHT_ATTEMPT"])
def test_what_is_each_ranks_own_does_not(name):
    assert cache_key.key({}) == cache_key.key({name: "1"})


def test_the_numerics_of_a_job_are_all_in_the_key():
    wanted = numerics_env("portable", 3)
    assert cache_key.variables(wanted) == wanted


def test_an_installation_makes_another_forkserver_and_a_saved_notebook_does_not(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    empty = cache_key.installed()
    for noise in ("study.ipynb", ".study.ipynb.swp", "__pycache__"):
        (tmp_path / noise).touch()
    assert cache_key.installed() == empty
    info = tmp_path / "torch-2.13.0.dist-info"
    info.mkdir()
    first = cache_key.installed()
    assert first != empty
    os.utime(info, (1, 1))
    again = cache_key.installed()
    assert again != first
    (tmp_path / "torch.py").touch()  # it would be imported in torch's place
    assert cache_key.installed() != again


def test_limits_that_a_rank_would_inherit_make_another_forkserver():
    here = cache_key.inherited()
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (4096 if soft != 4096 else 8192, hard))
        assert cache_key.inherited() != here
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert cache_key.inherited() == here


def report(number: int) -> Report:
    return Report(number=number, at=1.0, kind="training", step=number, epoch=0.1, metrics={"loss": 0.5})


def spool(path, *numbers: int) -> None:
    with path.open("ab") as file:
        for number in numbers:
            file.write(report(number).model_dump_json().encode() + b"\n")


def test_the_spool_is_read_on_from_where_it_was_left(tmp_path):
    path = tmp_path / "spool.jsonl"
    reader = SpoolReader(path)
    assert reader.read().records == ()
    spool(path, 1, 2)
    assert reader.read().records == (report(1), report(2))
    spool(path, 3)
    assert reader.read().records == (report(3),)


def test_a_line_that_is_still_being_written_waits(tmp_path):
    path = tmp_path / "spool.jsonl"
    line = report(1).model_dump_json().encode()
    path.write_bytes(line[:20])
    reader = SpoolReader(path)
    assert reader.read().records == ()
    path.write_bytes(line + b"\n")
    assert reader.read().records == (report(1),)


def test_a_torn_line_costs_only_itself(tmp_path):
    path = tmp_path / "spool.jsonl"
    spool(path, 1)
    with path.open("ab") as file:
        file.write(b'{"type": "report", "num\xff\n')
    spool(path, 3, 4)
    assert [record.number for record in read_after(path, 1)] == [3, 4]


def test_an_attempt_has_one_launcher_for_ever(tmp_path):
    folder = AttemptFolder(tmp_path)
    lock = folder.lock()
    assert lock is not None
    assert folder.lock() is None
    folder.write("launcher.json", LauncherRecord(pid=1, started=1.0).model_dump_json().encode())
    os.close(lock)
    assert folder.lock() is None


def test_a_launcher_is_known_by_pid_and_start_time():
    me = LauncherRecord.of(os.getpid())
    assert me.alive()
    assert not me.model_copy(update={"started": me.started - 60}).alive()


def test_all_that_ranks_are_told_is_known_as_theirs():
    rendezvous = MEETING._replace(interface="lo")
    told = torch.env(rank_assignments(UNEVEN)[1], rendezvous) | horovod.env(rank_assignments(UNEVEN)[1], rendezvous)
    assert [name for name in told if not OF_RANKS.fullmatch(name)] == []
    assert not any(map(OF_RANKS.fullmatch, ["HOME", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LOCAL_DATA"]))
