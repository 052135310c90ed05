"""Test that gangs in kept allocations fulfil the contract of the Slurm engine, one after another in the same job."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_backend.engines.allocations.allocation import key_of
from kernel_backend.engines.allocations.lines import EVENTS, ORDERS, append_line, read_lines
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.engines.slurm.submission import read_submission, write_submission
from kernel_backend.home import allocation_folder, attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.states import Outcome
from tests.engines.contract import EngineContract, begun, ended, processes, status, until
from tests.engines.join_service import JoinedEngine, Joins
from tests.engines.test_slurm import pool
from tests.support.slurm import Slurm

TRIALS = 4


class TestSlurmAllocation(EngineContract):
    keep_allocation = 3600.0
    # Files in the folders of attempts, as those of gangs that are jobs.
    test_logs_and_their_tails_are_read_on_by_offset_and_a_tail_begins_with_a_line = None

    @pytest.fixture
    def make(self, site: Slurm, home: Path, joins: Joins) -> Callable[..., JoinedEngine]:
        return lambda **settings: JoinedEngine(home, pool(**{"keep_idle": 2.0} | settings), f"kept-{home.parent.name}")

    @pytest.fixture
    def engine(self, make) -> JoinedEngine:
        return make()

    @pytest.fixture
    def again(self, make) -> JoinedEngine:
        return make()

    def test_trials_through_a_kept_allocation_are_steps_of_one_job(self, engine, job, site, home):
        async def go():
            for number in range(1, TRIALS + 1):
                await engine.submit(job(number), "s")
                assert (await ended(engine, job(number).id)).outcome is Outcome.OK
                await engine.kill(job(number).id)  # as a service does, to be sure
                await engine.forget(job(number).id)
            (held,) = engine.allocations()
            told = read_lines(allocation_folder(home, held.id) / EVENTS)[0]
            assert [(each["event"], key_of(each["key"]).number) for each in told] == [
                (event, number) for number in range(1, TRIALS + 1) for event in ("started", "ended")
            ]
            assert states(site, held) == ["RUNNING"]
            await engine.give_back(held.id, "the test is over")

        asyncio.run(go())

    def test_an_allocation_that_nothing_wants_is_given_back_also_without_a_service(self, make, job, site):
        async def go():
            engine = make(keep_idle=0.5)
            await engine.submit(job(), "s")
            await ended(engine, job().id)
            (held,) = engine.allocations()
            site.wait(lambda: states(site, held) == ["COMPLETED"], "the holder leaves")
            await engine.statuses()
            await engine.forget(job().id)

            async def gone() -> bool:
                await engine.statuses()
                return engine.allocations() == []

            await until(gone, "it is shown no more")

        asyncio.run(go())

    def test_an_order_lost_with_its_service_is_given_again_and_starts_the_gang_once(self, engine, make, job, home):
        async def go():
            await engine.submit(job(seconds=60), "s")
            await begun(engine, job().id)
            (held,) = engine.allocations()
            orders = allocation_folder(home, held.id) / ORDERS
            ordered = orders.read_text()
            again = make()
            await again.statuses()
            assert orders.read_text() == ordered
            orders.write_text(ordered + ordered[:20])  # a service died in the midst of another order
            append_line(orders, **read_lines(orders)[0][0])
            await until(lambda: asyncio.sleep(1, result=True), "the holder reads")
            assert len(processes(home, "standin")) == 2
            await again.kill(job().id)
            assert processes(home) == []

        asyncio.run(go())

    def test_a_gang_whose_service_died_before_the_order_begins_with_the_next_service(self, engine, make, job, home):
        async def go():
            await engine.submit(job(), "s")
            assert (await ended(engine, job().id)).outcome is Outcome.OK
            (held,) = engine.allocations()
            # As `place` leaves it: the script and the submission are written, the order is not.
            folder = AttemptFolder(attempt_folder(home, job(2).id))
            first = AttemptFolder(attempt_folder(home, job().id))
            folder.prepare(engine.joins.of(job(2)).expect(job(2)), "s")
            script = (first.path / "step.sh").read_text().replace("1.1-1", "1.1-2")
            (folder.path / "step.sh").write_text(script)
            before = read_submission(first)
            comment = before.comment.replace("1.1-1", "1.1-2")
            write_submission(folder, before.model_copy(update={"comment": comment, "allocation": held.id}))
            (folder.path / "listed").write_text("gpu")
            again = make()
            assert (await ended(again, job(2).id)).outcome is Outcome.OK
            assert [each.id for each in again.allocations()] == [held.id]
            await again.give_back(held.id, "the test is over")

        asyncio.run(go())

    def test_a_gang_whose_allocation_is_cancelled_is_lost_and_one_that_waits_in_it_gets_another(
        self, engine, job, site, home
    ):
        async def go():
            await engine.submit(job(seconds=60, deaf=True), "s")
            await begun(engine, job().id)
            (held,) = engine.allocations()
            site.run("scancel", held.job)
            found = await ended(engine, job().id)
            assert (found.outcome, found.result.failure.type) == (Outcome.LOST, "Cancelled"), found
            assert found.result.failure.message == f"its allocation (job {held.job}) was cancelled in Slurm"
            assert processes(home) == []
            await engine.submit(job(2), "s")
            assert (await ended(engine, job(2).id)).outcome is Outcome.OK
            await give_all_back(engine)

        asyncio.run(go())

    def test_a_gang_leaves_by_a_checkpoint_before_the_time_limit_and_the_next_gets_another(self, engine, job, site):
        async def go():
            await engine.submit(job(seconds=300), "s")
            await begun(engine, job().id)
            (held,) = engine.allocations()
            site.run("scontrol", "update", f"JobId={held.job}", "EndTime=now+100")
            found = await ended(engine, job().id)
            assert (found.outcome, found.result.exit_codes) == (Outcome.RELEASED, (85, 85))
            await engine.submit(job(2), "s")
            assert (await ended(engine, job(2).id)).outcome is Outcome.OK
            assert read_submission(AttemptFolder(attempt_folder(engine._home, job(2).id))).allocation != held.id
            assert "time is nearly over" in next(each.closing for each in engine.allocations() if each.id == held.id)
            await give_all_back(engine)

        asyncio.run(go())

    def test_a_gang_is_withdrawn_while_its_allocation_waits_and_the_next_takes_its_place(self, make, job, site):
        async def go():
            engine = make(extra=("--hold",))
            await engine.submit(job(), "s")

            async def waits() -> bool:
                return "JobHeldUser" in ((await status(engine, job().id)).reason)

            await until(waits, "Slurm's reason is told")
            reason = (await status(engine, job().id)).reason
            assert reason.startswith("Slurm: JobHeldUser"), reason
            assert reason.endswith("an allocation of 1h for its search")
            await engine.release(job().id)
            assert (await ended(engine, job().id)).outcome is Outcome.RELEASED
            await engine.submit(job(2), "s")
            (held,) = engine.allocations()
            assert held.gang == "1.1-2"
            site.run("scontrol", "release", held.job)
            assert (await ended(engine, job(2).id)).outcome is Outcome.OK
            assert AttemptFolder(attempt_folder(engine._home, job().id)).launcher() is None
            await give_all_back(engine)

        asyncio.run(go())

    def test_what_slurm_can_never_start_is_told_and_withdrawn(self, make, job, site):
        async def go():
            engine = make(extra=("--time=5:00:00",))  # of a partition with a limit of one hour
            await engine.submit(job(), "s")
            found = await ended(engine, job().id)
            assert found.outcome is Outcome.INFEASIBLE
            assert re.match("Slurm: Partition(TimeLimit|Config): the partition", found.result.failure.message)
            await engine.forget(job().id)
            refusing = make(extra=("--mem=999G",))
            await refusing.submit(job(2), "s")
            assert (await ended(refusing, job(2).id)).outcome is Outcome.INFEASIBLE
            assert "SlurmRefused" in (await ended(refusing, job(2).id)).result.failure.type

        asyncio.run(go())


def states(site: Slurm, held: HeldAllocation) -> list[str]:
    """Return the states of an allocation's job."""
    return site.run("squeue", "-h", "-t", "all", "-j", held.job, "-o", "%T").split()


async def give_all_back(engine: SlurmEngine) -> None:
    for each in engine.allocations():
        await engine.give_back(each.id, "the test is over")
