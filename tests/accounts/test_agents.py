"""Test that an agent which dies, stops, or sends wrong answers affects only its own user, who gets an error."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest
from pydantic import TypeAdapter

from kernel_backend.agent.operations import OPERATIONS
from kernel_backend.checkpoints.base import checkpoint_id
from kernel_backend.errors import CheckpointDamaged, Forbidden, NotFound, PlaceUnavailable
from kernel_backend.retry import RetryPolicy
from kernel_backend.unix_users.agents import AT_ONCE, GREETING, Agents, Body
from kernel_backend.unix_users.checkpoints import AgentCheckpoints
from kernel_backend.unix_users.workspaces import UnixUserWorkspaces
from tests.accounts.ourselves import Ourselves
from tests.contract.checkpoints_contract import commit, manifest
from tests.support.world import until

MAD = str(Path(__file__).with_name("mad_agent.py"))
NONE = TypeAdapter(None)
STATUSES = TypeAdapter(list[str])


@pytest.fixture
def patient(ourselves: Ourselves):
    """Provide agents with generous time limits, so that a slow machine causes no failures."""
    made = Agents(ourselves, answer_s=60.0, start_s=60.0, wait_s=60.0)
    yield made
    made.close()


WAYS = ["noise", "huge", "deep", "other", "foreign-error", "drip", "cut", "die", "silence"]


@pytest.mark.parametrize("way", ["exit", "stop", "hello-noise", "hello-die", "hello-silence", *WAYS])
def test_whatever_an_agent_answers_is_its_users_trouble_alone(way, ourselves, patient, monkeypatch):
    ourselves.instead["mallory"] = (MAD, way)
    patient.check("dave")
    monkeypatch.setattr(patient, "_answer_s", 2.0)
    if way in ("stop", "hello-silence"):
        monkeypatch.setattr(patient, "_start_s", 2.0)
    with pytest.raises(PlaceUnavailable, match=r"the files of mallory cannot be reached just now|evil") as raised:
        patient.ask("mallory", "statuses", STATUSES)
    assert type(raised.value).http_status == 503  # neither that of a wrong token nor of a foreign thing
    monkeypatch.undo()
    patient.check("dave")


def test_what_is_given_up_is_not_tried_again_at_once(ourselves, patient, monkeypatch):
    monkeypatch.setattr("kernel_backend.unix_users.agents.RETRY", RetryPolicy((0.0, 0.0, 60.0)))
    ourselves.instead["mallory"] = (MAD, "exit")
    for _ in range(4):
        with pytest.raises(PlaceUnavailable):
            patient.check("mallory")
    tries = len(ourselves.started)
    with pytest.raises(PlaceUnavailable, match="this is tried again"):
        patient.check("mallory")
    assert len(ourselves.started) == tries


BEGINS_LATE = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os.execv(sys.executable, [sys.executable, "-P", "-m", "kernel_backend.agent"])
"""


def test_an_agent_that_begins_late_is_not_waited_for_by_every_question(ourselves, tmp_path):
    gate = tmp_path / "gate"
    ourselves.instead["dave"] = ("-c", BEGINS_LATE, str(gate))
    agents = Agents(ourselves, start_s=60.0, wait_s=0.01)
    for _ in range(3):
        with pytest.raises(PlaceUnavailable, match="its agent is still starting; this is tried again"):
            agents.check("dave")
    gate.touch()
    until(lambda: answers(agents), "the agent has begun")
    assert len(ourselves.started) == 1
    agents.close()


def answers(agents: Agents) -> bool:
    try:
        agents.check("dave")
    except PlaceUnavailable:
        return False
    return True


def test_a_killed_agent_is_started_anew_at_the_next_need(ourselves, agents):
    place = AgentCheckpoints(agents, "dave", 1, 1, uid="")
    commit(place, 5)
    ourselves.started[-1].kill()
    ourselves.started[-1].wait()
    assert [each.id for each in place.committed()] == ["5-1"]
    assert len(ourselves.started) == 2


def test_a_question_that_is_refused_before_its_body_was_read_ends_no_agent(ourselves, agents):
    for _ in range(3):
        with pytest.raises(PlaceUnavailable, match="there is no operation 'no such'"):
            agents.ask("dave", "no such", NONE, Body.of(bytes(5_000_000)))
    agents.check("dave")
    assert len(ourselves.started) == 1


def test_a_stopped_agent_is_replaced_and_ends_when_it_goes_on(ourselves, patient, monkeypatch):
    patient.check("dave")
    stopped = ourselves.started[-1]
    os.kill(stopped.pid, signal.SIGSTOP)
    monkeypatch.setattr(patient, "_answer_s", 2.0)
    with pytest.raises(PlaceUnavailable, match="hello was not answered within 2 s"):
        patient.check("dave")
    monkeypatch.undo()
    patient.check("dave")
    assert len(ourselves.started) == 2
    os.kill(stopped.pid, signal.SIGCONT)
    stopped.wait(timeout=60)


def test_an_agent_ends_with_the_service(ourselves, agents):
    agents.check("dave")
    agents.close()
    assert ourselves.started[-1].wait(timeout=60) == 0


def test_an_agent_killed_over_an_upload_leaves_no_checkpoint_and_no_doubt(ourselves, agents):
    place = AgentCheckpoints(agents, "dave", 1, 1, uid="")
    agents.check("dave")

    def pieces():
        yield b"x" * 1000
        ourselves.started[-1].kill()
        ourselves.started[-1].wait()
        yield b"y" * 10_000_000

    with pytest.raises(PlaceUnavailable, match="its agent has ended"):
        agents.ask(
            "dave",
            "write",
            NONE,
            Body(10_001_000, pieces()),
            experiment=1,
            trial=1,
            checkpoint="5-1",
            name="model",
            size=10_001_000,
        )
    assert place.committed() == []
    commit(place, 5)
    place.verify(place.committed()[0])


def test_a_user_who_answers_nothing_takes_few_of_the_services_threads(ourselves, patient, monkeypatch):
    ourselves.instead["mallory"] = (MAD, "silence")
    monkeypatch.setattr(patient, "_answer_s", 10.0)
    said: list[str] = []

    def ask() -> None:
        try:
            patient.ask("mallory", "statuses", STATUSES)
        except PlaceUnavailable as error:
            said.append(error.message)

    many = [threading.Thread(target=ask) for _ in range(AT_ONCE * 3)]
    for each in many:
        each.start()
    until(lambda: sum("are being answered already" in text for text in said) >= AT_ONCE, "most are turned away")
    monkeypatch.undo()
    patient.check("dave")
    for each in many:
        each.join()


def test_a_body_that_never_comes_ends_in_time(ourselves, patient, monkeypatch):
    ourselves.instead["mallory"] = (MAD, "long-body")
    monkeypatch.setattr(patient, "_answer_s", 2.0)
    with (
        pytest.raises(PlaceUnavailable, match="not answered within 2 s"),
        patient.open("mallory", "artifact", NONE, experiment=1, trial=1, name="x") as (_, link),
    ):
        for _ in link.pieces():
            pass


def test_what_an_agent_raises_is_raised_here_if_it_is_about_files(agents):
    place = AgentCheckpoints(agents, "dave", 1, 1, uid="")
    with pytest.raises(NotFound, match="there is no checkpoint 7-1"):
        place.pin("7-1", True)
    with pytest.raises(PlaceUnavailable, match="no operation 'system'"):
        agents.ask("dave", "system", NONE, command="id")
    with pytest.raises(PlaceUnavailable, match="no operation '__class__'"):
        agents.ask("dave", "__class__", NONE)
    assert "hello" in OPERATIONS
    assert not [name for name in OPERATIONS if name.startswith("_")]


def test_an_agent_does_not_use_up_the_numbers_of_all_users_experiments(ourselves, patient):
    ourselves.instead["mallory"] = (MAD, "number")
    with pytest.raises(PlaceUnavailable, match="less than or equal to 9999999"):
        UnixUserWorkspaces(patient).of("mallory").largest_number()


def test_a_manifest_of_another_trial_is_not_believed(agents, ourselves):
    place = AgentCheckpoints(agents, "dave", 1, 1, uid="")
    part = place.write(checkpoint_id(5, 1), "model", [b"weights"])
    place.commit(manifest(5, parts=(part,), trial=2))
    with pytest.raises(CheckpointDamaged, match=r"is that of 1\.2/5-1"):
        place.committed()


def test_the_files_of_a_checkpoint_are_told_by_what_changes_with_them(agents, ourselves):
    place = AgentCheckpoints(agents, "dave", 1, 1, uid="")
    commit(place, 5)
    file = ourselves.area("dave") / "checkpoints/1/1/5-1/model.safetensors"
    os.utime(file, (1, 1))  # a clock that ticks slowly would show no difference else
    (before,) = place.committed()
    file.write_bytes(file.read_bytes())
    (after,) = place.committed()
    assert before.files != after.files
    assert not Path(after.folder).exists()  # nobody but the agent can look at it


def test_who_may_not_run_here_hears_why_and_nothing_is_remembered(ourselves):
    allowed: list[str] = []

    def spawn(user, stdin):
        if user not in allowed:
            raise Forbidden(f"nothing can run as {user} here")
        ourselves(user, stdin)

    made = Agents(spawn)
    with pytest.raises(Forbidden, match="nothing can run as dave"):
        made.check("dave")
    allowed.append("dave")
    made.check("dave")
    made.close()


def test_agents_leave_no_descriptors_behind(ourselves, agents):
    place = AgentCheckpoints(agents, "dave", 1, 1, uid="")
    commit(place, 5)
    process, agent = psutil.Process(), psutil.Process(ourselves.started[-1].pid)
    (found,) = place.committed()
    before = process.num_fds()
    for _ in range(50):
        place.committed()
        next(place.stream(found, "model"))  # and the rest of it is never asked for
        assert agents.ask("dave", "hello", GREETING).pid == agent.pid
    assert process.num_fds() <= before + 2
    until(lambda: agent.num_fds() < 40, "the agent has closed its ends")
