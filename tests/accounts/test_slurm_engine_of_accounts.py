"""Test the engine of pools of Unix accounts on a real Slurm: it calls only agents of users with gangs."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from kernel_backend.engines.base import Unconfirmed
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.ids import AttemptId
from kernel_backend.unix_users.agents import Agents
from kernel_backend.unix_users.notes import GangNotes
from kernel_backend.unix_users.slurm import UnixUserPools, UnixUserSlurmEngine
from tests.engines.contract import specifications

POOL = Pool(name="gpu", settings=PoolSettings(engine="slurm"))


def engine(agents: Agents, notes: GangNotes, pool: Pool = POOL) -> UnixUserSlurmEngine:
    return UnixUserPools(agents, lambda number: f"user{number}", notes)(pool)


def test_gangs_of_each_pool_are_noted_apart(tmp_path: Path):
    notes = GangNotes(tmp_path / "gangs")
    for number, pool in enumerate(("local", "gpu", "gpu", "cpu"), 1):
        notes.add(AttemptId(number, 1, 1), pool)
    (tmp_path / "gangs" / "a file of somebody's").touch()
    assert notes.of("local") == [AttemptId(1, 1, 1)]
    assert notes.by_pool() == {"gpu": [AttemptId(2, 1, 1), AttemptId(3, 1, 1)], "cpu": [AttemptId(4, 1, 1)]}
    assert [notes.pool(AttemptId(number, 1, 1)) for number in (1, 2, 9)] == ["local", "gpu", "local"]
    notes.remove(AttemptId(2, 1, 1))
    assert notes.of("gpu") == [AttemptId(3, 1, 1)]


def test_a_pool_whose_nodes_do_not_see_the_users_homes_is_refused(tmp_path: Path):
    unshared = Pool(name="gpu", settings=PoolSettings(engine="slurm", shared=False))
    with pytest.raises(InvalidRequest, match="the users' homes, which the nodes must see"):
        engine(Recording(), GangNotes(tmp_path / "gangs"), unshared)


class Recording(Agents):
    """Agents that return prepared answers, and record which users' agents are called."""

    def __init__(self, *answers: dict[str, object]) -> None:
        super().__init__(lambda user, stdin: pytest.fail("no agent is started"))
        self.asked: list[str] = []
        self._answer = json.dumps(answers)

    def ask(self, user, op, kind, *_, **__):
        self.asked.append(user)
        return kind.validate_json(self._answer)


def test_many_users_are_asked_at_most_ten_times_a_second_and_only_those_with_gangs(tmp_path: Path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("kernel_backend.unix_users.engine.time.monotonic", lambda: now[0])
    agents, notes = Recording(), GangNotes(tmp_path / "gangs")
    for number in range(50):
        notes.add(AttemptId(number, 1, 1), "gpu")
    notes.add(AttemptId(77, 1, 1), "local")

    async def seconds(length: int) -> None:
        them = engine(agents, notes)
        for _ in range(length * 5):
            await them.statuses()
            now[0] += 0.2

    asyncio.run(seconds(20))
    assert len(set(agents.asked)) == 50
    assert len(agents.asked) <= 20 * 10 + 50
    assert "user77" not in agents.asked


def test_why_a_gang_waits_cannot_steer_a_terminal_or_fill_a_page(tmp_path: Path):
    key = AttemptId(5, 1, 1)
    agents = Recording({"key": key, "phase": "pending", "reason": "\x1b[2J" + "x" * 9000})
    notes = GangNotes(tmp_path / "gangs")
    notes.add(key, "gpu")
    (found,) = asyncio.run(engine(agents, notes).statuses())
    assert (found.phase, len(found.reason)) == ("pending", 300)
    assert "\x1b" not in found.reason


def test_what_the_engine_of_an_agent_raises_arrives_as_that(agents: Agents, tmp_path: Path, monkeypatch):
    """Without Slurm's commands a gang waits; whether the job of another attempt was submitted is unknown."""
    notes = GangNotes(tmp_path / "gangs")
    job = specifications(tmp_path, tmp_path, sys.executable)()
    monkeypatch.setenv("PATH", str(tmp_path))
    asyncio.run(engine(agents, notes).submit(job, "secret"))
    (found,) = asyncio.run(engine(agents, notes).statuses())
    assert found.phase == "pending"
    assert re.match("Slurm: (sbatch|squeue) not found: start the service on a machine with", found.reason)
    with pytest.raises(Unconfirmed, match="may still run: squeue not found"):
        asyncio.run(engine(agents, notes).submit(job, "of another attempt"))
    assert notes.of("gpu") == [job.id]  # it might have been submitted: that is asked
