"""Test several pools as one engine: gangs go to their own pools, and errors of one pool do not affect others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.engines import pools as module
from kernel_backend.engines.base import Unconfirmed
from kernel_backend.engines.marks import FolderMarks
from kernel_backend.engines.pools import PoolEngines
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.errors import Conflict, InvalidRequest
from kernel_backend.home import attempt_folder
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import SpoolPosition
from kernel_backend.model.resources import Node
from tests.support.builders import node, share
from tests.support.memory_engine import MemoryEngine

SETTINGS = PoolSettings(engine="slurm")
ONE, TWO = AttemptId(1, 1, 1), AttemptId(2, 1, 1)


def of_pool(pool: str, name: str = "n1") -> Node:
    return node(name).model_copy(update={"pool": pool})


def pool(name: str, **settings: Any) -> Pool:
    return Pool(name=name, settings=SETTINGS.model_copy(update=settings))


def job(key: AttemptId, pool: str) -> LaunchSpec:
    return LaunchSpec(
        experiment=key.experiment,
        trial=key.trial,
        attempt=key.number,
        config=Config(slots=2),
        params={},
        placement=(share(),),
        python="python",
        cwd="/",
        code="/",
        snapshot="0" * 64,
        checkpoints="/",
        home="/",
        pool=pool,
    )


class Several:
    """Engine for the local pool and the pools `gpu` and `site`; the nodes of `site` are chosen by its own queue."""

    def __init__(self, home: Path, *others: str) -> None:
        self.home, self.local = home, MemoryEngine([node("here")])
        self.made = {
            "gpu": MemoryEngine([of_pool("gpu")]),
            "site": MemoryEngine([of_pool("site", "s1")], places=False),
        }
        self.refused = "no such partition"
        self.engines = self.again(*(others or self.made))

    def again(self, *names: str) -> PoolEngines:
        """Return the engine after a restart of the service."""
        return PoolEngines(self.local, self._make, map(pool, names), FolderMarks(self.home))

    def _make(self, pool: Pool) -> MemoryEngine:
        if pool.name not in self.made:
            raise InvalidRequest(self.refused)
        return self.made[pool.name]

    def left(self, key: AttemptId, pool: str) -> None:
        """Write the folder of a gang, as an earlier service leaves it."""
        folder = attempt_folder(self.home, key)
        folder.mkdir(parents=True)
        (folder / "listed").write_text(pool)
        (folder / "job.json").write_text(json.dumps({"pool": pool}))


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Several:
    monkeypatch.setattr(module, "WAIT_S", 0.05)
    monkeypatch.setattr(module, "FIRST_S", 0.05)
    return Several(tmp_path)


def play(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_each_gang_goes_to_the_engine_of_its_pool(several: Several):
    async def go():
        engines = several.engines
        await engines.submit(job(ONE, "local"), "s")
        await engines.submit(job(TWO, "gpu"), "s")
        assert (list(several.local.gangs), list(several.made["gpu"].gangs)) == ([ONE], [TWO])
        assert {each.key: each.phase for each in await engines.statuses()} == {ONE: "running", TWO: "running"}
        await engines.release(TWO)
        await engines.records(TWO, 0, SpoolPosition())
        await engines.kill(TWO)
        await engines.forget(TWO)
        assert several.made["gpu"].calls == [(act, TWO) for act in ("release", "records", "kill", "forget")]
        assert [each.key for each in await engines.statuses()] == [ONE]
        assert several.local.calls == []

    play(go)


def test_the_nodes_of_all_pools_have_names_of_their_own(several: Several):
    several.made["site"].there.append(of_pool("site", "n1"))

    async def go():
        found = await several.engines.nodes()
        assert [(each.name, each.pool) for each in found] == [
            ("here", "local"),
            ("n1", "gpu"),
            ("s1", "site"),
            ("n1@site", "site"),
        ]
        assert (await several.engines.nodes())[3] is found[3]

    play(go)


def test_a_pool_is_described_by_its_engine(several: Several):
    async def go():
        await several.engines.nodes()
        local, gpu, site = several.engines.statuses_of_pools()
        assert (local.name, local.engine, local.settings) == ("local", "memory", None)
        said = (gpu.name, gpu.engine, gpu.nodes, gpu.slots, gpu.kinds, gpu.places)
        assert said == ("gpu", "slurm", 1, 2, ("cpu",), True)
        assert (site.name, site.places, site.problem) == ("site", False, "")
        assert several.engines.most_waiting() == {"site": 20}
        assert [several.engines.places(name) for name in ("local", "gpu", "site")] == [True, True, False]

    play(go)


def test_a_broken_pool_keeps_what_was_known_of_it_and_the_others_go_on(several: Several):
    async def go():
        engines, gpu = several.engines, several.made["gpu"]
        await engines.submit(job(TWO, "gpu"), "s")
        await engines.nodes()
        await engines.statuses()
        gpu.broken = "the controller does not answer"
        await engines.submit(job(ONE, "site"), "s")
        assert {each.key: each.phase for each in await engines.statuses()} == {ONE: "running", TWO: "running"}
        assert [(each.pool, each.healthy) for each in await engines.nodes()] == [
            ("local", True),
            ("gpu", False),
            ("site", True),
        ]
        assert engines.problems() == {"gpu": "OSError: the controller does not answer"}
        with pytest.raises(Unconfirmed, match=r"attempt 2\.1-1 in pool gpu has ended is not known: OSError"):
            await engines.kill(TWO)
        gpu.broken = ""
        await engines.statuses()
        assert all(each.healthy for each in await engines.nodes())
        assert engines.problems() == {}

    play(go)


def test_a_slow_pool_delays_no_other_and_its_answer_comes_later(several: Several):
    async def go():
        engines, gpu = several.engines, several.made["gpu"]
        await engines.nodes()
        gpu.answers.clear()
        gpu.there = [of_pool("gpu"), of_pool("gpu", "n2")]
        assert len(await engines.nodes()) == 3
        await asyncio.sleep(0.06)
        assert len(await asyncio.wait_for(engines.nodes(), 10)) == 3  # it is not waited for again
        gpu.answers.set()
        await asyncio.sleep(0.01)
        assert len(await engines.nodes()) == 4

    play(go)


def test_a_pool_that_never_answers_says_so(several: Several, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LATE_S", 0.01)

    async def go():
        several.made["gpu"].answers.clear()
        await several.engines.nodes()
        await several.engines.nodes()
        assert several.engines.problems()["gpu"].startswith("it has not answered for ")

    play(go)


def test_an_answer_that_was_under_way_at_a_submission_does_not_count(several: Several):
    async def go():
        engines, gpu = several.engines, several.made["gpu"]
        gpu.answers.clear()
        await engines.statuses()  # asked before the gang was there, and not answered yet
        await engines.submit(job(TWO, "gpu"), "s")
        gpu.answers.set()
        assert [each.key for each in await engines.statuses()] == [TWO]

    play(go)


def test_a_pool_whose_engine_cannot_be_made_tells_why_and_takes_none_down(several: Several):
    engines = several.again("other", "gpu")

    async def go():
        assert len(await engines.nodes()) == 2
        assert engines.problems() == {"other": "no such partition"}
        with pytest.raises(Conflict, match="pool other cannot be used now: no such partition"):
            await engines.submit(job(ONE, "other"), "s")
        with pytest.raises(InvalidRequest, match="there is no pool gone any more"):
            await engines.submit(job(ONE, "gone"), "s")

    play(go)


def test_gangs_that_an_earlier_service_left_run_until_their_engine_has_told_more(several: Several):
    several.left(ONE, "gpu")
    several.left(TWO, "gone")
    several.made["gpu"].answers.clear()

    async def go():
        engines = several.again("gpu")
        assert {each.key: each.phase for each in await engines.statuses()} == {ONE: "running", TWO: "running"}
        with pytest.raises(Unconfirmed, match="pool gone has ended is not known: there is no such pool any more"):
            await engines.kill(TWO)
        await engines.release(TWO)
        several.made["gpu"].answers.set()
        await asyncio.sleep(0.01)
        assert [each.key for each in await engines.statuses()] == [TWO]
        several.made["gone"] = MemoryEngine()
        engines.add(pool("gone"))
        await engines.kill(TWO)
        assert several.made["gone"].calls == [("kill", TWO)]
        assert await engines.statuses() == []

    play(go)


def test_files_of_a_gang_whose_pool_was_removed_are_read_as_those_of_this_machine(several: Several):
    several.left(ONE, "gone")

    async def go():
        await several.engines.records(ONE, 0, SpoolPosition())
        await several.engines.forget(ONE)
        assert several.local.calls == [("records", ONE), ("forget", ONE)]

    play(go)


def test_a_restarted_service_finds_the_engine_of_a_gang_in_its_launch_spec(several: Several):
    several.left(ONE, "gpu")

    async def go():
        await several.again("gpu").records(ONE, 0, SpoolPosition())
        assert several.made["gpu"].calls == [("records", ONE)]

    play(go)


def test_a_replaced_pool_keeps_its_gangs_and_one_with_gangs_is_not_removed(several: Several):
    async def go():
        engines = several.engines
        await engines.submit(job(ONE, "gpu"), "s")
        several.made["gpu"], before = MemoryEngine([of_pool("gpu", "n2")]), several.made["gpu"]
        several.made["gpu"].answers.clear()
        engines.add(pool("gpu", partition="a100"))
        assert [(each.key, each.phase) for each in await engines.statuses()] == [(ONE, "pending")]
        with pytest.raises(Conflict, match=r"gangs in pool gpu are still ending \(1\.1-1\)"):
            engines.remove("gpu")
        several.made["gpu"].answers.set()
        await asyncio.sleep(0.01)
        assert await engines.statuses() == []
        engines.remove("gpu")
        assert {each.pool for each in await engines.nodes()} == {"local", "site"}
        assert before.calls == []

    play(go)


class AllocatingMemoryEngine(MemoryEngine):
    """Engine in which searches keep allocations, unless its pool is not suited."""

    keeps = True

    def __init__(self, *held: HeldAllocation) -> None:
        super().__init__([of_pool("site", "s1")], places=False)
        self.held = held

    def allocations(self) -> Sequence[HeldAllocation]:
        return self.held

    async def give_back(self, id: str, why: str) -> None:
        self.held = tuple(each for each in self.held if each.id != id)


def test_for_each_free_allocation_one_more_gang_is_handed_over_to_a_sites_queue(several: Several):
    held = HeldAllocation(id="7-a", pool="site", experiment=7, slots=1, job="1", running=True)
    busy, closing = held.model_copy(update={"gang": "7.1-1"}), held.model_copy(update={"closing": "given back"})
    several.made["site"] = AllocatingMemoryEngine(held, busy, closing)
    assert several.again("gpu", "site").most_waiting() == {"site": SETTINGS.most_waiting + 1}


def test_allocations_are_kept_where_the_engine_can_in_its_pool(several: Several):
    several.made["site"] = AllocatingMemoryEngine()
    engines = several.again("gpu", "site")
    assert list(engines.keeping()) == ["site"]
    several.made["site"].keeps = False
    assert engines.keeping() == {}


def test_a_pool_stays_until_its_allocations_have_been_given_back(several: Several):
    several.made["site"] = kept = AllocatingMemoryEngine(
        HeldAllocation(id="7-a", pool="site", experiment=7, slots=1, job="4711")
    )
    engines = several.again("gpu", "site")
    with pytest.raises(Conflict, match=r"in pool site are being given back \(4711\): remove it in a moment"):
        engines.remove("site")
    kept.held = ()
    engines.remove("site")


def test_jobs_of_slurm_are_kept_where_their_nodes_see_the_home(tmp_path: Path):
    assert SlurmEngine(tmp_path, pool("gpu"), "5f").keeps
    assert not SlurmEngine(tmp_path, pool("gpu", shared=False), "5f").keeps
