"""Measure a round of the scheduler in the service: 10,000 slots, 1,000 trials running, 100,000 queued.

    python benchmarks/scheduler_rounds.py [--queued 100000]

1,250 nodes of 8 slots, 1,000 users in 20 groups with guarantees, a store in SQLite; CPU time of all threads. `afresh`
and `aligned` are done once after a service starts: it reads the state of the cluster, and compares the state of each
trial with the one that its experiment requires. Then, each as the median of ten: reading the state when nothing has
changed, reading it after ten gangs have ended, the decision after that, and explaining why a request waits: the tenth
of the queue, and the last.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from sqlalchemy import insert

from benchmarks.scheduling import asks, cluster
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.model import events as e
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.states import ExperimentState, Outcome, TrialState
from kernel_backend.model.trial import Trial
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.explain.explain import explain
from kernel_backend.service.build import build
from kernel_backend.service.context import Context
from kernel_backend.service.loop.loop import Loop
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store import tables
from kernel_backend.store.sql import SqlStore
from kernel_backend.workspaces.own import SingleWorkspace
from tests.unit.service.test_cluster_state import World

ROUNDS = 10


def fill(store: SqlStore, count: int) -> None:
    """Write `count` experiments of one trial each to the store, all queued."""
    many, trials = [], []
    for number, request in enumerate(asks(count), 1):
        config = Config(
            slots=request.slots, preemptible=request.preemptible, max_time=request.max_time, one_node=request.one_node
        )
        group = f"g{int(request.owner[1:]) % 20}"
        made = Experiment(
            number=number,
            name="",
            state=ExperimentState.ACTIVE,
            owner=request.owner,
            group=group,
            snapshot="0" * 64,
            config=config,
            params={},
            python="python",
            cwd="/",
            notebook=None,
            created_at=request.queued_at,
        )
        many.append(tables.to_row(made))
        trial = Trial(experiment=number, index=1, state=TrialState.QUEUED, params={}, queued_at=request.queued_at)
        trials.append(tables.to_row(trial))
    with store._writing() as tx:
        tx.db.execute(insert(tables.experiments), many)
        tx.db.execute(insert(tables.trials), trials)


def loop_of(world: World) -> Loop:
    """Return the loop of a service on the same store and nodes."""
    home, storage = world.home, CheckpointStorage(str(world.home / "checkpoints"))
    archive, workspaces = Archive(home / "snapshots"), SingleWorkspace(world.workspace)
    context = Context(world.store, archive, world.engine, storage, workspaces, home)  # type: ignore[arg-type]
    return build(context)._loop


async def measure(world: World) -> None:
    def spent(since: float) -> float:
        return 1000 * (time.process_time() - since)

    async def look() -> float:
        begun = time.process_time()
        await world.cluster_state.now()
        return spent(begun)

    loop = loop_of(world)
    await loop._reconcile()  # what no node can hold is held, as it is before a restart
    print(f"afresh                    {await look():8.0f} ms", flush=True)
    loop = loop_of(world)
    await loop.cluster_state.now()
    begun = time.process_time()
    await loop._reconcile()
    print(f"aligned                   {spent(begun):8.0f} ms", flush=True)
    del loop
    await world.decide()
    draw, quiet, changed, decided, near, far = random.Random(0), [], [], [], [], []
    for _ in range(ROUNDS):
        world.at += 60.0
        quiet.append(await look())
        picture = await world.cluster_state.now()
        for key in draw.sample(sorted(picture.runs), 10):
            world.ends(key, e.Finished(), Outcome.OK)
        changed.append(await look())
        begun = time.process_time()
        decisions = decide(picture)
        decided.append(spent(begun))
        ordered = sorted(picture.queue, key=lambda request: request.order)
        for asked, times in ((ordered[9], near), (ordered[-1], far)):
            begun = time.process_time()
            explain(picture, asked, world.cluster_state.lengths)
            times.append(spent(begun))
        await world.decide()
        del decisions
    print(f"{len(picture.runs)} running, {len(picture.queue.requests)} queued; load {os.getloadavg()[0]:.1f}")
    told = (("nothing has changed", quiet), ("ten gangs have ended", changed), ("the decision", decided))
    for name, times in (*told, ("why the tenth waits", near), ("why the last one waits", far)):
        print(f"{name:25} {median(times):8.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queued", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        world = World(Path(home))
        world.at = 2.0 * given.queued
        world.engine.there = cluster(1250)
        world.quotas.groups = {f"g{nth}": Quota(guarantee=200, limit=2000) for nth in range(20)}
        assert isinstance(world.store, SqlStore)
        fill(world.store, given.queued)
        asyncio.run(measure(world))
        world.store.close()


if __name__ == "__main__":
    main()
