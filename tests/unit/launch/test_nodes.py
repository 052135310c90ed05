"""Test what a launcher on a node of an engine finds out there, and how the ends of nodes become a result."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.errors import InvalidRequest
from kernel_backend.launch import node as launch_node
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.gang import Peers, _info
from kernel_backend.launch.gang_outcome import result_of
from kernel_backend.launch.node import counts, rank_variables, share, slurm_node_index
from kernel_backend.launch.rendezvous import rank_assignments
from kernel_backend.launch.tensorflow import env as tensorflow_env
from kernel_backend.model.launch.nodes import GangNode, NodeIndex, placement_of
from kernel_backend.model.reports import AttemptResult, NodeEnd, NodeProblem
from kernel_backend.model.trial import Failure
from tests.support.builders import node, user_error

NODES = (
    GangNode(name="n1", address="10.0.0.1", kind="cpu", slots=2, torch_port=4001, rank_ports=(5001, 5002)),
    GangNode(name="n2", address="10.0.0.2", kind="cpu", slots=1, rank_ports=(5003,)),
)


def end(number: int = 0, **fields: Any) -> NodeEnd:
    codes = {0: 0, 1: 0} if number == 0 else {2: 0}
    return NodeEnd(**({"node": number, "names": ("n1", "n2"), "size": 3, "codes": codes, "ended_at": 9.0} | fields))


def test_a_task_of_a_job_step_knows_its_node():
    assert slurm_node_index({"SLURM_NODEID": "1", "SLURM_STEP_NUM_NODES": "2", "SLURM_NNODES": "8"}) == (1, 2)
    assert slurm_node_index({"SLURM_NODEID": "0", "SLURM_NNODES": "3"}) == (0, 3)
    with pytest.raises(InvalidRequest, match="start it with srun"):
        slurm_node_index({})


def test_shares_of_the_cpu_come_from_the_engine_and_devices_from_the_node(monkeypatch):
    monkeypatch.setattr(launch_node.devices, "local_node", lambda: node("host", slots=8))
    variables = {"DAYLIGHT_SLOTS_OF_NODES": "4(x2),3", "SLURMD_NODENAME": "n3"}
    assert (share(variables, NodeIndex(2, 3)).name, share(variables, NodeIndex(2, 3)).slots) == ("n3", 3)
    gpus = node("host", slots=4, kind="cuda").model_copy(update={"devices": ("A100",) * 4})
    monkeypatch.setattr(launch_node.devices, "local_node", lambda: gpus)
    assert share(variables, NodeIndex(0, 3)) == gpus.model_copy(update={"name": "n3", "kind": "cpu", "devices": ()})
    assert share({"SLURMD_NODENAME": "n1"}, NodeIndex(0, 1)).devices == ("A100",) * 4
    monkeypatch.setattr(launch_node.devices, "local_node", lambda: node("host", slots=8))
    assert share({"SLURMD_NODENAME": "n1"}, NodeIndex(0, 1)).slots == 8
    assert counts("2,1(x3)") == [2, 1, 1, 1]


def test_ranks_do_not_take_themselves_for_tasks_of_the_engine():
    found = rank_variables({"SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "PMI_RANK": "0", "PATH": "/bin", "SRUN_X": "1"})
    assert found == {"SLURM_JOB_ID": "7", "PATH": "/bin"}


def test_every_rank_of_a_command_has_the_address_of_its_own_node():
    second = rank_assignments(placement_of(NODES))[2]
    assert (second.node, second.node_number, second.cross_rank, second.local_rank) == ("n2", 1, 1, 0)
    found = json.loads(tensorflow_env(second, _info(Peers(NODES, 1, "eth0"), None))["TF_CONFIG"])
    assert found["cluster"]["worker"] == ["10.0.0.1:5001", "10.0.0.1:5002", "10.0.0.2:5003"]
    assert found["task"] == {"type": "worker", "index": 2}


def test_a_gang_completes_when_the_ranks_of_all_nodes_have():
    assert result_of([end(), end(1)]) == AttemptResult(outcome="ok", exit_codes=(0, 0, 0), ended_at=9.0)
    assert result_of([end(codes={0: 85, 1: 85}), end(1, codes={2: 85})]).outcome == "released"


def test_the_rank_that_failed_is_named_wherever_it_ran():
    lost_peer = Failure(rank=0, type="DistBackendError", message="connection closed by peer", consequence=True, at=1.0)
    ends = [
        end(codes={0: 1, 1: -9}, killed=(1,), failures=(lost_peer,)),
        end(1, codes={2: -9}),
    ]
    failure = result_of(ends).failure
    assert failure is not None
    assert (failure.rank, failure.type) == (2, "SIGKILL")
    raised = user_error(rank=2)
    assert result_of([ends[0], end(1, codes={2: 1}, failures=(raised,))]).failure == raised


def test_a_node_without_a_record_was_lost():
    lost_peer = Failure(rank=0, type="DistBackendError", message="connection closed by peer", consequence=True, at=1.0)
    both = lost_peer, lost_peer.model_copy(update={"rank": 1})
    result = result_of([end(codes={0: 1, 1: 1}, failures=both)])
    assert (result.outcome, result.exit_codes) == ("lost", (1, 1, None))
    assert result.failure is not None
    assert (result.failure.type, result.failure.message) == ("NodeLost", "node n2 was lost")
    assert [(each.node, each.kind) for each in result.problems] == [("n2", "lost")]
    own = result_of([end(codes={0: 1, 1: 1}, failures=(user_error(rank=1),))])
    assert (own.outcome, own.failure, own.problems) == ("failed", user_error(rank=1), ())


def test_an_error_of_a_gpu_is_told_with_its_node_whatever_ended_the_gang():
    ends = [end(codes={0: 1, 1: 1}, failures=(user_error(rank=1),)), end(1, codes={2: -9}, gpu="GPU 0: Xid 79")]
    assert result_of(ends).problems == (NodeProblem(node="n2", kind="gpu", reason="GPU 0: Xid 79"),)


def test_a_lost_node_does_not_undo_a_release():
    assert result_of([end(codes={0: 85, 1: 85})]).outcome == "released"


def test_a_gang_that_was_never_started_says_why():
    why = Failure(rank=0, type="GangNotFormed", message="n2 has Daylight 0.9")
    refused = NodeEnd(node=0, names=("",), size=0, refused=why, refused_as="failed", ended_at=3.0)
    assert result_of([refused]) == AttemptResult(outcome="failed", exit_codes=(), failure=why, ended_at=3.0)


def test_a_launcher_that_starts_no_ranks_ends_the_gang_on_any_node(tmp_path: Path):
    why = Failure(rank=0, type="InvalidRequest", message="DAYLIGHT_SLOTS is no number")
    AttemptFolder(tmp_path, 1).write_end(NodeEnd(node=0, names=("",), size=0, refused=why, ended_at=3.0))
    refusal = AttemptFolder(tmp_path).refusal()
    assert refusal is not None
    assert (refusal.outcome, refusal.failure) == ("failed", why)
    AttemptFolder(tmp_path).write_end(end())
    assert AttemptFolder(tmp_path).refusal() == refusal


def test_a_result_is_there_once_every_node_has_written_its_own(tmp_path: Path):
    first, second = AttemptFolder(tmp_path), AttemptFolder(tmp_path, 1)
    assert (first.result(), first.partial_result()) == (None, None)
    second.write_end(end(1))
    assert first.result() is None
    partial = first.partial_result()
    assert partial is not None
    assert partial.failure is not None
    assert partial.failure.message == "node n1 was lost"
    first.write_end(end())
    assert first.result() == first.partial_result() == result_of([end(), end(1)])


def test_the_launchers_of_two_nodes_hold_locks_of_their_own(tmp_path: Path):
    first, second = AttemptFolder(tmp_path), AttemptFolder(tmp_path, 1)
    assert first.lock() is not None
    assert second.lock() is not None
    assert AttemptFolder(tmp_path, 1).lock() is None


def test_the_outcome_of_a_gangs_only_launcher_is_read(tmp_path: Path):
    folder = AttemptFolder(tmp_path)
    known = AttemptResult(outcome="ok", exit_codes=(0,), ended_at=1.0)
    folder.write("outcome.json", json.dumps(known.to_json()).encode())
    assert folder.result() == known


def test_launchers_say_for_what_they_wait_until_their_ranks_exist(tmp_path):
    first, second = AttemptFolder(tmp_path), AttemptFolder(tmp_path, 1)
    assert first.wait() == ""
    second.write_wait("n2 cannot reach the service: no route")
    assert first.wait() == "n2 cannot reach the service: no route"
    first.write_wait("1 of 2 nodes have joined: n1")
    os.utime(tmp_path / "wait.txt", (9e9, 9e9))
    assert first.wait() == "1 of 2 nodes have joined: n1"
    first.write_pids({0: 12})
    assert first.wait() == ""
