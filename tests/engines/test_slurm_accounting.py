"""Test a Slurm with slurmdbd: limits of accounts and QOS are explained, and sacct knows jobs that squeue forgot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_backend.engines.slurm.submission import read_submission
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.states import Outcome
from tests.engines.contract import begun, ended, interpreter, specifications, status, until
from tests.engines.join_service import JoinedEngine
from tests.support.builders import share
from tests.support.slurm import Slurm, slurm

pytestmark = pytest.mark.usefixtures("joins")

SUBMITTED = "AssocMaxSubmitJobLimit (your site's limit of submitted jobs)"


@pytest.fixture(scope="module")
def accounted() -> Iterator[Slurm]:
    """Provide a Slurm with slurmdbd, simulated GPUs and the QOS `tight` and `strict`, which soon forgets ended jobs."""
    with slurm(gpus=4, accounting=True, job_age=2) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(running.conf))
        running.accounts(
            "add qos tight,strict",
            "modify qos tight set MaxTRESPerUser=gres/gpu=2,cpu=4",
            "modify qos strict set MaxTRESPerUser=gres/gpu=2 Flags=DenyOnLimit",
            "modify account lab set qos+=tight,strict",
        )
        yield running


@pytest.fixture
def site(accounted: Slurm) -> Iterator[Slurm]:
    yield accounted
    accounted.limits(MaxSubmitJobs=-1, MaxJobs=-1, GrpTRES="cpu=-1")
    accounted.run("scancel", "--me")
    accounted.wait(lambda: not accounted.run("squeue", "-h"), "all jobs have ended")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def job(tmp_path: Path, home: Path) -> Callable[..., LaunchSpec]:
    return specifications(tmp_path, home, interpreter(tmp_path))


def pool(**settings) -> Pool:
    return Pool(name="gpu", settings=PoolSettings(engine="slurm", **settings))


@pytest.fixture
def service(tmp_path: Path) -> str:
    """Return a service name for each test, since Slurm still lists the jobs of other tests."""
    return tmp_path.name


@pytest.fixture
def engine(site: Slurm, home: Path, service: str) -> JoinedEngine:
    return JoinedEngine(home, pool(), service)


def number(home: Path, job: LaunchSpec) -> str:
    """Return the id of a gang's job in Slurm."""
    found = read_submission(AttemptFolder(attempt_folder(home, job.id)))
    assert found is not None
    return found.job


async def waits(engine: JoinedEngine, job: LaunchSpec, reason: str) -> None:
    async def look() -> bool:
        found = await status(engine, job.id)
        return found is not None and (found.phase, found.reason) == ("pending", reason)

    await until(look, f"{job.id} waits: {reason}")


async def runs(engine: JoinedEngine, job: LaunchSpec) -> None:
    async def look() -> bool:
        found = await status(engine, job.id)
        return found is not None and found.phase == "running"

    await until(look, f"{job.id} runs")


@pytest.mark.parametrize(
    ("limits", "settings", "slots", "reason"),
    [
        ({"GrpTRES": "cpu=1"}, {}, 2, "Slurm: AssocGrpCpuLimit (your site's limit for your account)"),
        ({"MaxJobs": 0}, {}, 1, "Slurm: AssocMaxJobsLimit (your site's limit for your account)"),
        ({}, {"qos": "tight"}, 6, "Slurm: QOSMaxCpuPerUserLimit (your site's limit for you)"),
        ({}, {"qos": "tight"}, 3, "Slurm: QOSMaxGRESPerUser (your site's limit for you)"),
    ],
)
def test_a_limit_of_the_site_is_told_while_a_gang_waits_for_it(
    site, home, job, limits, settings, slots, reason, service
):
    site.limits(**limits)
    kind = "cuda" if "GRES" in reason else "cpu"

    async def go():
        engine = JoinedEngine(home, pool(**settings), service)
        gang = job().model_copy(update={"placement": (share(tuple(range(slots)), kind=kind),)})
        await engine.submit(gang, "s")
        await waits(engine, gang, reason)
        await engine.release(gang.id)
        assert (await ended(engine, gang.id)).outcome is Outcome.RELEASED

    asyncio.run(go())


def test_a_gang_that_a_qos_denies_for_good_is_refused_with_the_limit(site, home, job, service):
    async def go():
        engine = JoinedEngine(home, pool(qos="strict"), service)
        await engine.submit(job().model_copy(update={"placement": (share((0, 1, 2), kind="cuda"),)}), "s")
        found = await status(engine, job().id)
        assert (found.phase, found.outcome) == ("ended", Outcome.INFEASIBLE)
        expected = "Slurm: QOSMaxGRESPerUser (your site's limit for you). To change: request less, or change `qos`"
        assert expected in found.result.failure.message

    asyncio.run(go())


def test_gangs_beyond_the_limit_of_submitted_jobs_are_handed_over_in_order_when_others_end(
    site, engine, home, job, service
):
    site.limits(MaxSubmitJobs=1)

    async def go():
        for nth in (1, 2, 3):
            await engine.submit(job(nth, seconds=60), "s")
        await begun(engine, job(1).id)
        for nth in (2, 3):
            await waits(engine, job(nth), f"Slurm: {SUBMITTED}")
        again = JoinedEngine(home, pool(), service)  # as after a restart of the service
        await waits(again, job(2), f"Slurm: {SUBMITTED}")
        await again.release(job(1).id)
        await runs(again, job(2))
        assert number(home, job(3)) == ""
        await waits(again, job(3), f"Slurm: {SUBMITTED}")
        await again.release(job(3).id)
        assert (await ended(again, job(3).id)).outcome is Outcome.RELEASED
        assert len(site.run("squeue", "-h", "-o", "%i").split()) == 1

    asyncio.run(go())


def test_a_gang_that_is_killed_before_sbatch_takes_it_is_never_submitted(site, engine, home, job):
    site.limits(MaxSubmitJobs=0)

    async def go():
        await engine.submit(job(), "s")
        await waits(engine, job(), f"Slurm: {SUBMITTED}")
        await engine.kill(job().id)
        site.limits(MaxSubmitJobs=-1)
        assert (await ended(engine, job().id)).outcome is Outcome.KILLED
        await engine.submit(job(), "s")
        assert number(home, job()) == ""

    asyncio.run(go())


def test_what_became_of_jobs_that_left_the_list_is_asked_of_sacct(site, home, job, monkeypatch, service):
    """One job was cancelled while no engine polled, and one ended at its time limit."""
    monkeypatch.setenv("SLURM_JWT", "of a surrounding program")  # sacct would take it for its own

    async def go():
        engine = JoinedEngine(home, pool(), service)
        held = JoinedEngine(home, pool(extra=("--hold",)), service)
        await held.submit(job(), "s")
        await engine.submit(job(2, seconds=200, deaf=True), "s")
        await begun(engine, job(2).id)
        site.run("scontrol", "update", f"JobId={number(home, job(2))}", "EndTime=now+3")
        site.run("scancel", number(home, job()))
        site.wait(lambda: not site.run("squeue", "-h", "-t", "all", "-o", "%i"), "Slurm forgets both")
        cancelled, late = await ended(engine, job().id), await ended(engine, job(2).id)
        assert (cancelled.outcome, cancelled.result) == (Outcome.KILLED, None)
        assert (late.outcome, late.result.failure.type) == (Outcome.TIMEOUT, "TimeLimit")

    asyncio.run(go())
