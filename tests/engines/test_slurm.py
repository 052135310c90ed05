"""Test that the engine for Slurm fulfils the contract on a real Slurm."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.states import Outcome
from tests.engines.contract import EngineContract, begun, ended, log, processes
from tests.engines.join_service import JoinedEngine, Joins
from tests.support.builders import share
from tests.support.slurm import Slurm

TWO_NODES = (share((0, 1), "n1"), share((0, 1), "n2"))


def pool(name: str = "gpu", **settings) -> Pool:
    return Pool(name=name, settings=PoolSettings(engine="slurm", **settings))


class TestSlurmEngine(EngineContract):
    @pytest.fixture
    def engine(self, site: Slurm, tmp_path: Path, joins: Joins) -> JoinedEngine:
        return JoinedEngine(tmp_path / "home", pool(), "tests")

    @pytest.fixture
    def again(self, site: Slurm, tmp_path: Path, joins: Joins) -> JoinedEngine:
        return JoinedEngine(tmp_path / "home", pool(), "tests")

    def test_two_nodes_are_one_world(self, engine, job, joins):
        async def go():
            gang = job().model_copy(update={"placement": TWO_NODES})
            await engine.submit(gang, "secret")
            found = await ended(engine, gang.id)
            assert (found.outcome, found.result.exit_codes) == (Outcome.OK, (0, 0, 0, 0)), found
            said = [json.loads((await log(engine, gang.id, rank)).decode().splitlines()[0]) for rank in range(4)]
            assert {each["WORLD_SIZE"] for each in said} == {"4"}
            assert len({(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in said}) == 1
            names = [node.name for node in joins.nodes(gang.id)]
            if "HOROVOD_RANK" in said[0]:
                assert [each["HOROVOD_RANK"] for each in said] == ["0", "1", "2", "3"]
                assert [each["HOROVOD_LOCAL_RANK"] for each in said] == ["0", "1", "0", "1"]
                assert [each["HOROVOD_HOSTNAME"] for each in said] == [names[0]] * 2 + [names[1]] * 2
            assert len(set(names)) == 2

        asyncio.run(go())

    def test_a_killed_rank_of_one_node_ends_those_of_the_other_within_a_second_or_two(self, engine, job, home):
        async def go():
            gang = job(seconds=300).model_copy(update={"placement": TWO_NODES})
            await engine.submit(gang, "secret")
            await begun(engine, gang.id, ranks=4)
            victim = next(p for p in processes(home, "standin") if p.environ()["RANK"] == "3")
            victim.kill()
            killed = time.monotonic()
            found = await ended(engine, gang.id)
            print(f"rank killed -> gang ended: {time.monotonic() - killed:.1f} s")
            assert (found.outcome, found.result.failure.rank) == (Outcome.FAILED, 3)
            assert found.result.failure.type == "SIGKILL"
            assert processes(home, "standin") == []

        asyncio.run(go())

    def test_a_killed_launcher_of_one_node_ends_the_gang_on_all(self, engine, job, home):
        async def go():
            gang = job(seconds=300).model_copy(update={"placement": TWO_NODES})
            await engine.submit(gang, "secret")
            await begun(engine, gang.id, ranks=4)
            launcher = next(
                p for p in processes(home, "kernel_backend.launch") if p.environ().get("SLURM_NODEID") == "1"
            )
            launcher.kill()
            found = await ended(engine, gang.id)
            assert found.outcome is Outcome.LOST
            assert processes(home, "standin") == []

        asyncio.run(go())

    def test_a_released_gang_of_two_nodes_leaves_by_itself(self, engine, job, home):
        async def go():
            gang = job(seconds=300).model_copy(update={"placement": TWO_NODES})
            await engine.submit(gang, "secret")
            await begun(engine, gang.id, ranks=4)
            await engine.release(gang.id)
            found = await ended(engine, gang.id)
            assert (found.outcome, found.result.exit_codes) == (Outcome.RELEASED, (85, 85, 85, 85))

        asyncio.run(go())

    def test_unequal_shares_are_seen_by_each_node(self, engine, job, joins):
        async def go():
            three = job().model_copy(update={"placement": (share((0, 1), "n1"), share((0,), "n2"))})
            twelve = job(2).model_copy(update={"placement": (share(tuple(range(8)), "n1"), share((0, 1, 2, 3), "n2"))})
            for gang in (three, twelve):  # Slurm chooses the shares: 8 and 4, or 6 and 6
                await engine.submit(gang, "secret")
                found = await ended(engine, gang.id)
                assert found.outcome is Outcome.OK, found
            assert sorted(node.slots for node in joins.nodes(three.id)) == [1, 2]
            shares = [node.slots for node in joins.nodes(twelve.id)]
            assert (len(shares), sum(shares), len(found.result.exit_codes)) == (2, 12, 12)

        asyncio.run(go())
