"""Register, retain and delete at random: no registered or pinned file is lost, and each log is linear.

python -m tests.torture.registers [--count N] [--moves N] [--seed S] [--processes N]

The first part plays random histories of checkpoints that are saved, registered, pinned, removed, collected by retention
rules and deleted with their experiments, and from which evaluations begin, with a copy that is made while other things
happen. After each action all files of registered and pinned checkpoints are there, those that an evaluation needs, and
its copy; an evaluation is refused only for a checkpoint that was deleted, which the error names.
The second moves aliases by two writers whose clocks differ by a minute, and asks what each alias was at random times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from kernel_backend.checkpoints.base import Checkpoints, Manifest, checkpoint_id
from kernel_backend.checkpoints.copy import copy_checkpoint
from kernel_backend.checkpoints.retention import expendable
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.errors import Conflict, NotFound
from kernel_backend.fairness.owner_limit import OwnerLimit
from kernel_backend.model import events
from kernel_backend.model.checkpoints import GarbageRequest
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.disk import UNDO_S
from kernel_backend.model.experiment import Config, Keep, Metric
from kernel_backend.model.register.history import aliases_at, decide_change
from kernel_backend.model.register.records import Model, ModelChange, ModelEdit, ModelVersion, Registration
from kernel_backend.model.states import EXPERIMENT_ENDED
from kernel_backend.model.trial import MODEL, WEIGHTS, Beginning
from kernel_backend.service.context import Context
from kernel_backend.service.deletion import Deletion
from kernel_backend.service.retention import Retention
from kernel_backend.service.verbs.checkpoints import CheckpointVerbs
from kernel_backend.service.verbs.register import ModelVerbs
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.register.base import ModelStep
from kernel_backend.store.sql import SqlStore
from kernel_backend.workspaces.own import OwnWorkspace, SingleWorkspace
from tests.support.builders import update_trial
from tests.support.empty_database import empty_database
from tests.support.memory_engine import MemoryEngine
from tests.support.memory_folder import memory_folder

ACTIONS = 20  # of a history
FIRST = 4  # checkpoints before anything else happens
A_SITE = 50  # histories, after which another service begins: listing all that was is no part of the proof
ADA = Person(name="ada")
CLOCK_S = 60.0  # by which the clocks of the writers differ
Act = Callable[[], Coroutine[Any, Any, Any]]


class Site:
    """The parts of a service that save, register and delete checkpoints, without its control loop."""

    def __init__(self, home: Path) -> None:
        self.store = SqlStore(empty_database(home / "daylight.db"))
        self.storage = CheckpointStorage(str(home / "checkpoints"), self.store.trial_uid)
        context = Context(
            store=self.store,
            archive=Archive(home / "snapshots"),
            engine=MemoryEngine(),
            checkpoint_storage=self.storage,
            workspaces=SingleWorkspace(OwnWorkspace(home)),
            home=home,
        )
        limit = OwnerLimit(1, 1)
        self.checkpoints = CheckpointVerbs(self.store, self.storage, Retention(context), limit)
        self.models, self.deletion = ModelVerbs(self.store, self.checkpoints), Deletion(context)


class Evaluation(NamedTuple):
    """Experiment that begins from a checkpoint: the place for its copy, and whether that has been made."""

    number: int
    checkpoint: str
    place: Checkpoints
    copied: bool = False


class History:
    """A random history of one experiment, whose checkpoints become versions of two models, and are evaluated."""

    def __init__(self, site: Site, rng: random.Random) -> None:
        self._site, self._rng, self._step = site, rng, 0
        self._keep = Keep(best=rng.randrange(2), latest=rng.randrange(3))
        self.number = self._add(Config(keep=self._keep, metric=Metric(name="loss")))
        update_trial(site.store, self.number, 1, time.time(), attempt=1)
        self._names = [f"{name}-{self.number}" for name in ("memes", "cats")]
        self._place = site.storage.open(self.number, 1)
        self._folder = Path(site.storage.where(self.number, 1))
        self._pinned, self._written = set[str](), dict[str, bytes]()
        self._held: frozenset[str] | None = None  # checkpoints at the moment the experiment was deleted
        self._evaluations = list[Evaluation]()
        self._wrong = list[str]()  # evaluations that were refused without a cause
        self.evaluated = self.refused = 0

    async def act(self) -> str:
        """Do something at random; return what, for the message of a failure."""
        if self._step < FIRST:
            await self._save()
            return "_save"
        acts: list[Act] = [
            self._save,
            self._save,
            self._prune,
            self._prune,
            self._register,
            self._register,
            self._evaluate,
            self._evaluate,
            self._copy,
            self._copy,
            self._copy,
            self._collect,
        ]
        acts += [
            self._finish,
            self._delete,
            self._pin,
            self._unpin,
            self._move,
            self._remove,
            self._end,
            self._delete_all,
            self._purge,
        ]
        chosen = self._rng.choice(acts)
        with suppress(Conflict, NotFound):
            await chosen()
        return chosen.__name__

    async def clear_up(self) -> str:
        """End the experiment, let go of all that no evaluation needs, delete it, and purge it a day later."""
        if self._site.store.experiment(self.number).state not in EXPERIMENT_ENDED:
            self._stop(self.number)
        with suppress(Conflict, NotFound):
            for each in self._site.store.registered(self.number):
                await self._site.models.change(ADA, each.name, ModelEdit(act="remove", version=each.version))
            for checkpoint in self._pinned - {each.checkpoint for each in self._evaluations}:
                await self._site.checkpoints.pin(ADA, self.number, 1, checkpoint, False)
                self._pinned.discard(checkpoint)
            await self._delete_all()
        await self._site.deletion.purge(time.time() + 2 * UNDO_S)
        return "clear_up"

    def lost(self) -> list[str]:
        """Return the checkpoints of which a byte is missing: registered, pinned, needed by an evaluation, or its copy.

        Evaluations that were refused without a cause follow.
        """
        there = {each.id for each in self._place.committed()}
        needed = {each.checkpoint for each in self._evaluations}
        kept = self._pinned if self._held is None else self._held & needed
        wanted = {each.checkpoint for each in self._site.store.registered(self.number)} | kept
        gone = [id for id in wanted if id not in there or self._read(id) != self._written[id]]
        copies = [f"copy of {each.checkpoint}" for each in self._evaluations if each.copied and not self._whole(each)]
        return sorted(gone) + copies + self._wrong

    def _read(self, checkpoint: str) -> bytes:
        return (self._folder / checkpoint / "model.safetensors").read_bytes()

    def _whole(self, evaluation: Evaluation) -> bool:
        """Return whether an evaluation has one checkpoint, with all bytes of that from which it began."""
        copies = [evaluation.place.read(each, "model") for each in evaluation.place.committed()]
        return copies == [self._written[evaluation.checkpoint]]

    def _add(self, config: Config, begins_from: str | None = None) -> int:
        draft = NewExperiment(
            owner="ada", group="ada", snapshot="0" * 64, config=config, params={}, python="python", cwd="/",
            begins_from=begins_from,
        )  # fmt: skip
        return self._site.store.add_experiment(draft, at=time.time())[0].number

    async def _save(self) -> None:
        if self._site.store.experiment(self.number).state in EXPERIMENT_ENDED:
            return
        self._step += 1
        part = self._place.write(checkpoint_id(self._step, 1), "model", [self._rng.randbytes(32)])
        manifest = Manifest(
            experiment=self.number, trial=1, uid=self._site.store.trial_uid(self.number, 1), attempt=1,
            step=self._step, epoch=0.0, at=0.0, world=1, seed=0, params={}, parts=(part,),
            metrics={"loss": self._rng.random()},
        )  # fmt: skip
        self._place.commit(manifest)
        self._written[manifest.id] = self._read(manifest.id)

    async def _prune(self) -> None:
        """Apply the retention rules as a running rank does; another action may come after its listing."""
        if self._held is not None:  # no rank runs any more
            return
        listed = expendable(self._place.committed(), self._keep, Metric(name="loss"))
        if self._rng.random() < 0.5:
            with suppress(Conflict, NotFound):
                await self._register()
        for each in listed:
            self._place.discard(each.id)

    async def _register(self) -> None:
        name = self._rng.choice(self._names)
        await self._site.models.register(ADA, self.number, 1, self._chosen(), Registration(name=name))

    async def _evaluate(self) -> None:
        """Submit an evaluation of a checkpoint, which pins it, or of a version of a model, which is pinned already."""
        if self._rng.random() < 0.5:
            chosen = self._chosen() if self._rng.random() < 0.5 else None
            chosen = chosen or await self._site.checkpoints.at(ADA, self.number, 1, None)
            await self._site.checkpoints.pin(ADA, self.number, 1, chosen, True)
            self._pinned.add(chosen)
        else:
            versions = self._site.store.registered(self.number)
            if not versions:
                raise NotFound("there is no version")
            version = self._rng.choice(versions)
            chosen = (await self._site.models.version(ADA, f"{version.name}@{version.version}")).checkpoint
        source = Beginning(f"{self.number}.1", chosen, self._rng.choice(["", WEIGHTS, MODEL]))
        number = self._add(Config(form="evaluation", weights_from=source.trial, keep=self._keep), str(source))
        self._evaluations.append(Evaluation(number, chosen, self._site.storage.open(number, 1)))

    async def _copy(self) -> None:
        """Copy the checkpoint of an evaluation that has not begun, perhaps while another action may delete it."""
        waiting = [each for each in self._evaluations if not each.copied]
        if not waiting:
            await self._evaluate()
        chosen = self._rng.choice(waiting or self._evaluations[-1:])
        source = self._site.store.trial(chosen.number, 1).begins_from
        assert source is not None
        drop = partial(self._drop, chosen.checkpoint)
        beside: list[Act] = [self._prune, self._delete, self._unpin, self._collect, self._remove, self._save, drop]
        other = asyncio.ensure_future(self._rng.choice([*beside, drop])())
        if self._rng.random() < 0.5:
            await asyncio.wait([other], timeout=self._rng.choice([0.002, None]))
        copy = asyncio.to_thread(copy_checkpoint, self._site.storage, source, chosen.place, chosen.number, 1)
        found, problem = await asyncio.gather(copy, other, return_exceptions=True)
        if problem is not None and not isinstance(problem, Conflict | NotFound):
            raise problem
        self._evaluations.remove(chosen)
        which = f"evaluation #{chosen.number} of {chosen.checkpoint}"
        there = chosen.checkpoint in {each.id for each in self._place.committed()}
        if found is None:
            self._evaluations.append(chosen._replace(copied=True))
            self.evaluated += 1
        elif isinstance(found, NotFound) and not there and f" {chosen.checkpoint} of " in str(found):
            self.refused += 1
            if chosen.place.committed():
                self._wrong.append(f"{which}: refused, but a part was committed")
        else:
            self._wrong.append(f"{which}: {found!r}")

    async def _drop(self, checkpoint: str) -> None:
        """Unpin a checkpoint and delete it, though an evaluation has named it."""
        await self._site.checkpoints.pin(ADA, self.number, 1, checkpoint, False)
        self._pinned.discard(checkpoint)
        await self._site.checkpoints.delete(ADA, self.number, 1, checkpoint)

    async def _finish(self) -> None:
        """End an evaluation and delete it, so that it needs its checkpoint no longer."""
        if not self._evaluations:
            return
        chosen = self._rng.choice(self._evaluations)
        self._stop(chosen.number)
        await self._site.deletion.delete(ADA, chosen.number)
        self._evaluations.remove(chosen)

    async def _collect(self) -> None:
        """Apply the rules to the experiment, or to an evaluation, which needs its copy."""
        numbers = [self.number, *(each.number for each in self._evaluations)]
        await self._site.checkpoints.collect(ADA, GarbageRequest(experiment=self._rng.choice(numbers)))

    async def _delete(self) -> None:
        await self._site.checkpoints.delete(ADA, self.number, 1, self._chosen())

    async def _pin(self) -> None:
        chosen = self._chosen()
        await self._site.checkpoints.pin(ADA, self.number, 1, chosen, True)
        self._pinned.add(chosen)

    async def _unpin(self) -> None:
        chosen = self._chosen()
        await self._site.checkpoints.pin(ADA, self.number, 1, chosen, False)
        self._pinned.discard(chosen)

    async def _move(self) -> None:
        name, alias = self._rng.choice(self._names), self._rng.choice(["production", "candidate"])
        edit = ModelEdit(act="set", alias=alias, version=self._rng.randrange(1, 4))
        if self._rng.random() < 0.3:
            edit = ModelEdit(act="unset", alias=alias)
        await self._site.models.change(ADA, name, edit)

    async def _remove(self) -> None:
        edit = ModelEdit(act="remove", version=self._rng.randrange(1, 4))
        await self._site.models.change(ADA, self._rng.choice(self._names), edit)

    async def _end(self) -> None:
        ended = self._site.store.experiment(self.number).state in EXPERIMENT_ENDED
        if not ended and self._rng.random() < 0.5:
            self._stop(self.number)

    def _stop(self, number: int) -> None:
        """End an experiment whose trial is queued, so that a stop ends both."""
        store, now = self._site.store, time.time()
        store.advance_trial(number, 1, events.Stop(), now)
        store.advance_experiment(number, events.Stop(), now)
        store.advance_experiment(number, events.Ended(), now)

    async def _delete_all(self) -> None:
        there = frozenset(each.id for each in self._place.committed())
        await self._site.deletion.delete(ADA, self.number)
        if self._held is None:
            self._held = there

    async def _purge(self) -> None:
        await self._site.deletion.purge(time.time() + UNDO_S * self._rng.choice([0.5, 2.0]))

    def _chosen(self) -> str:
        there = [each.id for each in self._place.committed()]
        if not there:
            raise NotFound("there is no checkpoint")
        return self._rng.choice(there)


def histories(count: int, seed: int | str) -> str:
    """Play random histories; return how many lost no file, with what was done before the first loss."""
    registered = evaluated = refused = 0
    with asyncio.Runner() as runner:
        for first in range(0, count, A_SITE):
            with memory_folder() as home:
                site = Site(home)
                for number in range(first, min(first + A_SITE, count)):
                    history, done = History(site, random.Random(f"{seed}-{number}")), list[str]()
                    for act in [*[history.act] * ACTIONS, history.clear_up]:
                        registered += len(site.store.registered(history.number)) if act == history.clear_up else 0
                        done.append(runner.run(act()))
                        if missing := history.lost():
                            return f"{number} of {count} histories lost no file; then {missing} after {', '.join(done)}"
                    evaluated, refused = evaluated + history.evaluated, refused + history.refused
                    runner.run(site.deletion.purge(time.time() + 2 * UNDO_S))  # a later history has fewer to look at
                site.store.close()
    return (
        f"{count} of {count} histories lost no file, {registered} registered versions; {evaluated} evaluations began, "
        f"{refused} of checkpoints that were deleted before did not"
    )


def moves(count: int, seed: int) -> str:
    """Move aliases by two writers; return how many questions by date were answered rightly, if the log is linear."""
    with memory_folder() as home:
        file = empty_database(home / "daylight.db")
        stores = [SqlStore(file), SqlStore(file)]
        for number in (1, 2, 3):
            _register(stores[0], number)
        with ThreadPoolExecutor(2) as pool:
            work = [pool.submit(_moves, stores[writer], writer, count // 2, seed) for writer in (0, 1)]
            done = sorted((each for one in work for each in one.result()), key=lambda each: each.number)
        log = stores[0].models()[0].log
        for store in stores:
            store.close()
    if [each.number for each in log] != list(range(1, len(log) + 1)) or tuple(done) != log[3:]:
        return f"the log is not the {count} moves in a line"
    states, now = [dict[str, int]()], dict[str, int]()
    for each in done:  # what the writers have been told, one after the other
        if each.before != now.get(each.alias) or each.version is None:
            return f"entry {each.number} says {each.alias} was {each.before}, and it was {now.get(each.alias)}"
        now = {**now, each.alias: each.version}
        states.append(now)
    times, rng = [each.at for each in done], random.Random(seed)
    asked = [rng.choice([rng.choice(times), rng.uniform(times[0] - 1, times[-1] + 1)]) for _ in range(1000)]
    right = sum(aliases_at(log, at) == states[bisect_right(times, at)] for at in asked)
    return f"{len(done)} moves in one linear log, {right} of 1000 questions by date right"


def _register(store: SqlStore, experiment: int) -> None:
    version = ModelVersion(
        owner="ada", name="memes", version=1, experiment=experiment, trial=1, search=False, checkpoint="10-1", step=10,
        digest="d", snapshot="0" * 64, author="ada", group="ada", metric=Metric(), who="ada", at=0.0,
    )  # fmt: skip
    change = ModelChange(at=0.0, who="ada", act="register")
    store.change_model("ada", "memes", lambda before: ModelStep(change, version))


def _moves(store: SqlStore, writer: int, count: int, seed: int) -> list[ModelChange]:
    """Move aliases until `count` moves have changed one; return the entries of the log."""
    rng, done = random.Random(f"{seed}-{writer}"), list[ModelChange]()
    while len(done) < count:
        edit = ModelEdit(act="set", alias=rng.choice(["production", "candidate"]), version=rng.randrange(1, 4))
        made: list[ModelChange] = []

        def decide(model: Model | None, edit: ModelEdit = edit, made: list[ModelChange] = made) -> ModelStep | None:
            assert model is not None
            change = decide_change(model, edit, str(writer), time.time() - CLOCK_S * writer, admin=False)
            made[:] = [] if change is None else [change]
            return None if change is None else ModelStep(change)

        model = store.change_model("ada", "memes", decide)
        if made:
            assert model is not None
            done.append(model.log[-1])
    return done


def main() -> int:
    """Run both parts, the histories in several processes; print what they found, return the code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--moves", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    parts = asked.processes
    count = -(-asked.count // parts)
    with ProcessPoolExecutor(parts, get_context("spawn")) as pool:
        played = list(pool.map(histories, [count] * parts, [f"{asked.seed}.{part}" for part in range(parts)]))
    moved = moves(asked.moves, asked.seed)
    print(*played, moved, sep="\n", flush=True)
    right = all(each.startswith(f"{count} of {count}") for each in played) and "1000 of 1000" in moved
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
