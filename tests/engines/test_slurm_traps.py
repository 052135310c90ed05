"""Test difficult situations on a real Slurm: jobs that never start, a silent controller, lost nodes, limits."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kernel_backend.engines.base import EngineUnavailable, GangStatus, Unconfirmed
from kernel_backend.engines.slurm.controller import Controller
from kernel_backend.engines.slurm.submission import read_submission, write_submission
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.states import Outcome
from tests.engines.contract import begun, ended, interpreter, processes, specifications, status, until
from tests.engines.join_service import JoinedEngine
from tests.support.builders import share
from tests.support.slurm import Slurm, slurm

pytestmark = pytest.mark.usefixtures("joins")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def job(tmp_path: Path, home: Path) -> Callable[..., LaunchSpec]:
    return specifications(tmp_path, home, interpreter(tmp_path))


def pool(name: str = "gpu", **settings) -> Pool:
    return Pool(name=name, settings=PoolSettings(engine="slurm", **settings))


@pytest.fixture
def service(request: pytest.FixtureRequest) -> str:
    """Return a service name for each test, since all tests use the same keys."""
    return f"{abs(hash(request.node.nodeid)):x}"


@pytest.fixture
def engine(site: Slurm, home: Path, service: str) -> JoinedEngine:
    return JoinedEngine(home, pool(), service)


@pytest.fixture
def busy(site: Slurm) -> Iterator[None]:
    """Let another user's job hold the whole partition `small`."""
    number = site.run("sbatch", "--parsable", "-p", "small", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 100")
    site.wait(lambda: "RUNNING" in site.run("squeue", "-h", "-o", "%T", "-j", number.strip()), "it runs")
    yield
    site.run("scancel", number.strip())
    site.wait(lambda: not site.run("squeue", "-h", "-p", "small"), "it ends")


def nodes(number: int) -> dict:
    """Return changes of a gang's launch spec by which it requests one slot on each of so many nodes."""
    return {"placement": tuple(share((0,), name=f"any{index}") for index in range(number))}


def folder(home: Path, key) -> AttemptFolder:
    return AttemptFolder(attempt_folder(home, key))


def jobs(site: Slurm, states: str = "all") -> list[str]:
    return site.run("squeue", "-h", "-t", states, "-o", "%k").split()


async def waiting(engine: JoinedEngine, key, reason: str) -> GangStatus:
    async def look():
        found = await status(engine, key)
        return found if found and found.phase == "pending" and reason in found.reason else None

    return await until(look, f"{key} waits because of {reason}")


@pytest.mark.parametrize(
    ("partition", "number"),
    [("main", 4), ("small", 2), ("main", 9999)],
)
def test_more_nodes_than_there_are_are_infeasible_at_once(site, home, job, partition, number, service):
    async def go():
        engine = JoinedEngine(home, pool(partition=partition), service)
        await engine.submit(job().model_copy(update=nodes(number)), "s")
        found = await ended(engine, job().id)
        assert found.outcome is Outcome.INFEASIBLE
        assert re.search("Slurm: Partition(NodeLimit|Config): the partition", found.result.failure.message)
        assert site.run("squeue", "-h", "-p", partition) == ""
        assert (await status(engine, job().id)).outcome is Outcome.INFEASIBLE

    asyncio.run(go())


@pytest.mark.parametrize(
    ("settings", "said", "advice"),
    [
        ({"partition": "nope"}, "invalid partition specified: nope", "change `partition`"),
        ({"constraint": "nope"}, "Invalid feature specification", "change `constraint`"),
        ({"memory_per_slot": 10**6}, "Memory specification can not be satisfied", "change `memory_per_slot`"),
        ({"extra": ("--gres=gpu:1",)}, "Invalid generic resource (gres) specification", "change `gpu_type`"),
        ({"extra": ("--wrong=1",)}, "unrecognized option", "change `extra`"),
    ],
)
def test_what_sbatch_refuses_is_told_in_its_words_with_what_to_change(site, home, job, settings, said, advice, service):
    async def go():
        engine = JoinedEngine(home, pool(**settings), service)
        await engine.submit(job(), "s")
        found = await status(engine, job().id)
        assert (found.phase, found.outcome) == ("ended", Outcome.INFEASIBLE)
        assert said in found.result.failure.message
        assert advice in found.result.failure.message
        await engine.release(job().id)
        await engine.kill(job().id)

    asyncio.run(go())


def test_an_interpreter_without_daylight_is_a_failure_that_says_so(engine, job, tmp_path):
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\necho No module named kernel_backend >&2\nexit 1\n")
    bare.chmod(0o755)

    async def go():
        await engine.submit(job().model_copy(update={"python": str(bare)}), "s")
        found = await ended(engine, job().id)
        assert found.outcome is Outcome.FAILED
        assert "could not launch the ranks (No module named kernel_backend)" in found.result.failure.message
        assert [(each.node, each.kind) for each in found.result.problems] == [("n1", "start")]

    asyncio.run(go())


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("how", ["release", "kill"])
def test_a_gang_waits_in_the_queue_with_its_reason_and_is_cancelled_before_it_runs(site, home, job, how, service):
    async def go():
        engine = JoinedEngine(home, pool(partition="small"), service)
        await engine.submit(job(), "s")
        assert (await waiting(engine, job().id, "Resources")).reason.startswith("Slurm: Resources")
        await getattr(engine, how)(job().id)
        found = await ended(engine, job().id)
        assert found.outcome is (Outcome.RELEASED if how == "release" else Outcome.KILLED)
        assert folder(home, job().id).launcher() is None

    asyncio.run(go())


def test_while_the_controller_is_down_states_stay_and_what_cannot_be_done_says_so(site, engine, home, job, service):
    async def go():
        await engine.submit(job(seconds=90), "s")
        await begun(engine, job().id)
        await status(engine, job().id)
        site.saved()
        site.kill("slurmctld")
        try:
            began = time.monotonic()
            assert (await status(engine, job().id)).phase == "running"
            assert time.monotonic() - began < 4  # the loop of a service is not held up
            await engine.submit(job(2), "s")
            await waiting(engine, job(2).id, "Slurm's controller does not answer: ")
            await engine.submit(job(3), "s")
            await engine.release(job(3).id)
            assert (await waiting(engine, job(3).id, "does not answer")).phase == "pending"
            with pytest.raises(Unconfirmed, match="may still run: Slurm's controller does not answer"):
                await engine.kill(job().id)
            assert [found.phase for found in await engine.statuses()] == ["running", "pending", "pending"]
        finally:
            site.start("slurmctld")
            site.answers()
        assert (await ended(engine, job(2).id)).outcome is Outcome.OK
        assert (await ended(engine, job(3).id)).outcome is Outcome.RELEASED
        assert read_submission(folder(home, job(3).id)).job == ""
        assert (await status(engine, job().id)).phase == "running"
        await engine.release(job().id)
        assert (await ended(engine, job().id)).outcome is Outcome.RELEASED

    asyncio.run(go())


def test_a_job_is_found_again_by_a_service_that_died_before_it_knew_its_number(site, engine, home, job, service):
    async def go():
        await engine.submit(job(seconds=60), "s")
        before = read_submission(folder(home, job().id))
        write_submission(folder(home, job().id), before.model_copy(update={"job": ""}))
        again = JoinedEngine(home, pool(), service)
        await again.submit(job(seconds=60), "s")
        assert read_submission(folder(home, job().id)).job == before.job
        assert jobs(site).count(before.comment) == 1
        await begun(again, job().id)
        await again.kill(job().id)

    asyncio.run(go())


def test_a_controller_restarted_right_after_a_submission_starts_no_second_gang(site, engine, home, job, service):
    """If Slurm forgets the job, the gang counts as lost, and Slurm ends the job."""

    async def go():
        await engine.submit(job(seconds=3), "s")
        site.kill("slurmctld")
        site.start("slurmctld")
        site.answers()
        await JoinedEngine(home, pool(), service).submit(job(seconds=3), "s")
        comment = read_submission(folder(home, job().id)).comment
        assert jobs(site).count(comment) <= 1
        found = await ended(engine, job().id)
        assert found.outcome in (Outcome.OK, Outcome.LOST)
        assert jobs(site).count(comment) <= 1

    asyncio.run(go())


def test_a_lost_node_and_a_time_limit_are_told_apart_from_failures(site, home, job, service):
    """Both are tested at once, since Slurm takes half a minute to detect each."""

    async def go():
        engine = JoinedEngine(home, pool(), service)
        first = JoinedEngine(home, pool("first", extra=("--nodelist=n1",)), service)
        other = JoinedEngine(home, pool("other", extra=("--nodelist=n2",)), service)
        await first.submit(job(seconds=200), "s")
        await other.submit(job(2, seconds=200, deaf=True), "s")
        await begun(first, job().id)
        await begun(other, job(2).id)
        site.saved()
        number = read_submission(folder(home, job(2).id)).job
        site.run("scontrol", "update", f"JobId={number}", "EndTime=now+3")
        site.kill("n1")
        try:
            late = await ended(other, job(2).id)
            assert (late.outcome, late.result.failure.type) == (Outcome.TIMEOUT, "TimeLimit")
            lost = await ended(first, job().id)
            assert (lost.outcome, lost.result.failure.type) == (Outcome.LOST, "NodeLost")
            assert "lost a node of n1" in lost.result.failure.message
            assert [(each.node, each.kind) for each in lost.result.problems] == [("n1", "lost")]
            healthy = {node.name: node.healthy for node in await engine.nodes()}
            assert healthy == {"n1": False, "n2": True, "n3": True}
        finally:
            for process in processes(home):
                process.kill()  # Slurm no longer can: a service fences what runs on
            site.start("n1")
            site.idle()
        assert (await status(first, job().id)).outcome is Outcome.LOST

    asyncio.run(go())


def test_variables_of_a_surrounding_job_do_not_reach_a_gang(site, engine, home, job, monkeypatch):
    for name, value in {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "7", "SLURM_JWT": "x", "SLURM_NODEID": "5"}.items():
        monkeypatch.setenv(name, value)
    for name, value in {"SBATCH_PARTITION": "nope", "SQUEUE_FORMAT": "%i", "SRUN_LABEL": "1"}.items():
        monkeypatch.setenv(name, value)

    async def go():
        await engine.submit(job(seconds=60), "s")
        await begun(engine, job().id)
        seen = psutil.Process(folder(home, job().id).launcher().pid).environ()
        assert seen["SLURM_JOB_ID"] == read_submission(folder(home, job().id)).job
        assert (seen["SLURM_NTASKS"], seen["SLURM_NODEID"]) == ("1", "0")
        assert not {"SBATCH_PARTITION", "SLURM_JWT", "SQUEUE_FORMAT", "SRUN_LABEL"} & seen.keys()
        await engine.release(job().id)
        assert (await ended(engine, job().id)).outcome is Outcome.RELEASED

    asyncio.run(go())


def test_two_services_on_one_slurm_leave_each_others_gangs_alone(site, tmp_path, job, service):
    async def go():
        mine, other = JoinedEngine(tmp_path / "a", pool(), "a"), JoinedEngine(tmp_path / "b", pool(), "b")
        for engine, name in ((mine, "a"), (other, "b")):
            await engine.submit(job(seconds=60).model_copy(update={"home": str(tmp_path / name)}), "s")
        await begun(mine, job().id)
        await begun(other, job().id)
        assert len(await mine.statuses()) == 1
        await mine.set_aside(job().id)
        assert processes(tmp_path / "a") == []
        assert len(processes(tmp_path / "b", "standin")) == 2
        assert (await status(other, job().id)).phase == "running"
        await other.kill(job().id)

    asyncio.run(go())


@pytest.mark.usefixtures("busy")
def test_one_squeue_a_second_tells_about_all_gangs_of_all_pools(site, home, job, tmp_path, monkeypatch, service):
    real, calls = shutil.which("squeue"), tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "squeue"
    wrapper.write_text(f'#!/bin/sh\necho called >> {calls}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{site.environment['PATH']}")

    async def go():
        controller = Controller()
        engines = [JoinedEngine(home, pool(name, partition="small"), service, controller) for name in ("one", "two")]
        for number in range(1, 11):
            await engines[number % 2].submit(job(number), "s")
        began = time.monotonic()
        while time.monotonic() < began + 2.5:
            found = [len(each) for each in await asyncio.gather(*(engine.statuses() for engine in engines))]
            assert found == [5, 5]
        assert len(calls.read_text().split()) <= 4
        for number in range(1, 11):
            await engines[number % 2].release(job(number).id)

    asyncio.run(go())


def test_nodes_are_those_of_the_partition_and_no_more_slots_than_allowed(site, home):
    async def go(**settings):
        return [
            (node.name, node.slots, node.kind, node.pool)
            for node in await JoinedEngine(home, pool(**settings), "t").nodes()
        ]

    assert asyncio.run(go()) == [("n1", 8, "cpu", "gpu"), ("n2", 8, "cpu", "gpu"), ("n3", 8, "cpu", "gpu")]
    assert asyncio.run(go(partition="small", cpus_per_slot=3)) == [("n1", 2, "cpu", "gpu")]
    assert [each[1] for each in asyncio.run(go(most_slots=10))] == [8, 2, 0]
    with pytest.raises(EngineUnavailable, match="no nodes of the partition nope"):
        asyncio.run(go(partition="nope"))


def test_nodes_have_slurms_states_and_its_reasons(site, home):
    site.run("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=fans | smoke")
    try:
        found = asyncio.run(JoinedEngine(home, pool(), "t").nodes())
        assert [(node.state, node.reason, node.usable) for node in found] == [
            ("idle", "", True),
            ("idle", "", True),
            ("drained", "fans | smoke", False),
        ]
    finally:
        site.run("scontrol", "update", "NodeName=n3", "State=RESUME")


@pytest.fixture(scope="module")
def gpus() -> Iterator[Slurm]:
    """Provide another Slurm whose nodes have GPUs; jobs in `small` preempt those in `main`, which it would requeue."""
    with slurm(gpus=2, preemption="REQUEUE") as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(running.conf))
        yield running


def test_a_slot_is_a_gpu_where_the_partition_has_them_and_not_only_says_so(gpus, home, job, service, tmp_path):
    said, python = tmp_path / "devices", tmp_path / "reporting"
    python.touch(0o755)
    python.write_text(f'#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" > {said}\nexec {job().python} "$@"\n')

    async def go():
        engine = JoinedEngine(home, pool(gpu_type="a100"), service)
        found = await engine.nodes()
        assert [(node.kind, node.slots, node.devices) for node in found] == [("cuda", 2, ("a100", "a100"))] * 3
        placed = {"placement": (share((0, 1), kind="cuda"),), "python": str(python)}
        await engine.submit(job().model_copy(update=placed), "s")
        refused = await ended(engine, job().id)
        assert said.read_text() == "0,1\n"
        # The nodes only pretend to have GPUs.
        assert refused.outcome is Outcome.FAILED
        assert "was to have slots of kind cuda, and its launcher finds cpu" in refused.result.failure.message
        other = JoinedEngine(home, pool(gpu_type="h100"), service)
        await other.submit(job(2).model_copy(update={"placement": (share((0, 1), kind="cuda"),)}), "s")
        assert (await status(other, job(2).id)).outcome is Outcome.INFEASIBLE

    asyncio.run(go())


def test_a_preempted_gang_is_released_or_lost_and_never_failed(gpus, home, job, service):
    """One gang commits a checkpoint within its grace period, and one ignores the request."""

    async def go():
        engine = JoinedEngine(home, pool(partition="main", extra=("--nodelist=n1",)), service)
        await engine.submit(job(seconds=60), "s")
        await engine.submit(job(2, seconds=60, deaf=True), "s")
        await begun(engine, job().id)
        await begun(engine, job(2).id)
        gpus.run("sbatch", "-p", "small", "--exclusive", "-o", "/dev/null", "--wrap", "true")
        released, lost = await ended(engine, job().id), await ended(engine, job(2).id)
        assert (released.outcome, released.result.exit_codes) == (Outcome.RELEASED, (85, 85))
        assert (lost.outcome, lost.result.failure.type) == (Outcome.LOST, "Preempted")
        for nth in (1, 2):  # a job that Slurm requeues waits for `cred_expire`, and would train beside its successor
            about = gpus.run("scontrol", "show", "job", "-o", read_submission(folder(home, job(nth).id)).job)
            assert "Requeue=0 Restarts=0" in about

    asyncio.run(go())
