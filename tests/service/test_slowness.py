"""Test that causes of lost time in real trainings are named."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.client import Client
from kernel_backend.commands.times import record_trace, traces_of
from kernel_backend.home import attempt_folder
from kernel_backend.model.experiment import parse_cadence
from kernel_backend.model.facts import LoaderSetting, known
from kernel_backend.model.launch.launch_spec import read_job
from kernel_backend.model.launch.trace import TraceRequest, artifact_of
from kernel_backend.model.times import Times
from tests.support.slow_trainings import SLOW_DISK, SLOW_LOADER, SLOW_RANK
from tests.support.world import World, until

pytestmark = pytest.mark.distributed
STEPS, ENDLESS = 60, 100_000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("slowness") / "home", slots=5, shared_forkserver=True)
    made.serve()
    yield made
    made.close()


def final_times(client: Client, number: int) -> Times:
    """Return the times of an ended training, which are final."""
    times = client.times(number)
    assert times.ranks
    assert {each.now for each in times.ranks} == {None}
    return times


def test_a_service_that_was_away_at_the_end_has_the_final_times_and_use(world: World) -> None:
    number = world.lasting(slots=2, backend="torch")
    hurry = Path(str(world.reached(number, 1).trials[0].params["hurry"]))
    world.kill_service()
    hurry.touch()
    folder = world.home / "attempts" / f"{number}.1-1"
    until((folder / "outcome.json").exists, "the ranks have ended")
    until(lambda: not world.processes("kernel_backend.launch"), "the launcher has ended")
    client = world.serve()
    assert world.ended(number).state == "completed"
    assert [each.whole.steps > 5 for each in final_times(client, number).ranks] == [True, True]
    assert all(each.curve for each in client.utilisation(number).ranks)


@pytest.mark.long
def test_a_slow_loader_a_slow_rank_and_a_slow_disk_are_named_and_a_loader_is_tuned(world: World) -> None:
    """The trainings run at once to save time; those that are traced run until they are stopped."""
    loader = world.submit(SLOW_LOADER, slots=1, steps=STEPS, loader_workers=0).experiment.number
    rank = world.submit(SLOW_RANK, slots=2, steps=ENDLESS).experiment.number
    tuned = world.submit(SLOW_LOADER, slots=1, steps=ENDLESS).experiment.number
    disk = world.submit(SLOW_DISK, slots=1, steps=STEPS, checkpoint_every=parse_cadence("4steps")).experiment.number
    client = Client.connect(start=False, home=world.home)
    _is_traced(world, tuned, (0,))
    _is_traced(world, rank, (0, 1))
    until(lambda: any(each.startswith("tuned: ") for each in world.overview(tuned).warnings), "a loader is tuned")
    for number in (rank, tuned):
        world.reached(number, STEPS)
        client.stop(number)
        assert world.ended(number).state == "stopped"
    for number in (loader, disk):
        assert world.ended(number).state == "completed"
    found = {number: final_times(client, number) for number in (loader, rank, disk)}
    assert "of each step waits for data: --loader-workers " in found[loader].sentence
    assert found[rank].sentence.startswith("rank 1 is ")
    assert "mostly in forward" in found[rank].sentence
    assert found[disk].sentence.startswith("checkpoints take ")
    assert "the store writes " in found[disk].sentence
    for number in found:
        use = client.utilisation(number)
        assert use.whole.seconds > 0
        assert all(each.curve and each.whole.cpu and (each.whole.memory or 0) > 1e7 for each in use.ranks)
        assert {each.whole.gpu for each in use.ranks} == {None}
    _is_tuned(world, tuned, before=loader)
    for number, times in found.items():
        reported = world.reports(number)
        # The clock begins after the report of the first step, before that of the second, and stops after the last one.
        measured, ended = times.ranks[0].whole.seconds, world.overview(number).attempts[0].ended_at
        assert measured >= 0.97 * (reported[-1].at - reported[1].at)
        assert ended is not None
        assert measured <= 1.03 * (ended - reported[0].at)


def _is_traced(world: World, number: int, ranks: tuple[int, ...]) -> None:
    """Record a trace of a running training, and check its artifacts."""
    client = Client.connect(start=False, home=world.home)
    world.reached(number, 1)
    note = record_trace(client, number, TraceRequest(steps=3, ranks=ranks))
    assert note.startswith("traced steps ")
    for rank, found in zip(ranks, traces_of(client, number, None), strict=True):
        assert (found.rank, found.last - found.first) == (rank, 2)
        assert any(each.name == "aten::addmm" for each in found.operations)
        data = gzip.decompress(client.artifact(number, 1, artifact_of(rank)))
        assert b"ProfilerStep#3" in data


def _is_tuned(world: World, number: int, before: int) -> None:
    """Check that a training got loader workers without a change of its bits, and that its rerun starts with them."""
    client, overview = Client.connect(start=False, home=world.home), world.overview(number)
    chosen = LoaderSetting.model_validate(known(client.facts(number))["loader"])
    assert chosen.workers > 2
    # Where other programs make some batches slow, more of them are loaded in advance.
    ahead = f", {chosen.prefetch} batches ahead of each" if chosen.prefetch > 2 else ""
    said = f"tuned: {chosen.workers} loader workers{ahead} (waiting "
    assert any(each.startswith(said) for each in overview.warnings), overview.warnings
    assert client.times(number).ranks[0].workers == chosen.workers
    losses, alone = ({each.step: each.metrics for each in world.reports(about)} for about in (number, before))
    both = losses.keys() & alone.keys()
    assert both
    assert {step: losses[step] for step in both} == {step: alone[step] for step in both}
    again = client.rerun(number).experiment.number
    key = until(lambda: next(iter(world.overview(again).attempts), None), "the rerun has an attempt").id
    job = attempt_folder(world.home, key) / "job.json"
    until(job.exists, "its job is written")
    client.stop(again)
    assert read_job(job.read_bytes()).loader == chosen
