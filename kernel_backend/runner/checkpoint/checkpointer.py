"""Save checkpoints of all ranks while training continues, and choose the checkpoint to resume from."""

from __future__ import annotations

import contextlib
import errno
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from kernel_backend.checkpoints import retention
from kernel_backend.checkpoints.base import FROZEN, Checkpoints, Data, Manifest, Part, checkpoint_id
from kernel_backend.checkpoints.streams import Digesting, size_of
from kernel_backend.checkpoints.writer import pieces
from kernel_backend.errors import CheckpointFailed, Fenced, PlaceUnavailable
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.record import Value
from kernel_backend.model.reports import Committed, Note
from kernel_backend.model.trial import checkpoint_order
from kernel_backend.model.values import listed
from kernel_backend.retry import RetryPolicy
from kernel_backend.runner.checkpoint.call_signatures import CallSignatures
from kernel_backend.runner.checkpoint.contents import Contents, PerRankState, Read
from kernel_backend.runner.checkpoint.frozen import Unchanging
from kernel_backend.runner.checkpoint.saving import Background, Copying, Cost, HostCopy, Stopwatch
from kernel_backend.runner.ipc import Spool
from kernel_backend.runner.ranks.backends import Ranks
from kernel_backend.runner.timing.clock import CLOCK

SHOWN = 6  # number of weights named in a note
LAST_WORDS_S = 20.0  # limit for a checkpoint in progress when its rank must exit
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
RETRY = RetryPolicy((3.0,), tries=5)  # for operations that must not fail: the final save and the resume


class Position(NamedTuple):
    """Point of a training at which a checkpoint is saved: step, epoch, metrics, and what the loop needs to resume.

    `metrics` are the results of a validation at this step, {} if there was none. `facts` is JSON that the training loop
    writes and reads.
    """

    step: int
    epoch: float
    metrics: dict[str, float]
    facts: dict[str, Any]


class PendingCheckpoint(NamedTuple):
    """Checkpoint whose tensors are still being copied to host memory."""

    position: Position
    state: dict[str, Any]
    copying: Copying
    stalled: Stopwatch
    lazily: bool


class Checkpointer:
    """Writer and reader of one training's checkpoints.

    All ranks call `save`, `finish` and `restore` at the same step.
    """

    def __init__(
        self,
        job: LaunchSpec,
        ranks: Ranks,
        spool: Spool,
        home: Checkpoints,
        contents: Contents,
        numerics: Mapping[str, str],
        copy: HostCopy,
        eager: bool,
        refuses: Callable[[Manifest], str] = lambda _: "",
    ) -> None:
        """Set up the checkpointer.

        `home` is where the trial's checkpoints are stored, `contents` the state to save. `numerics` are the versions
        and settings that bit-exact results depend on. `copy` has the buffers in host memory to which tensors are
        copied. With `eager`, `save` returns only after all tensors are copied. `refuses` returns why the training must
        not resume from a checkpoint, "" if it may.
        """
        self._refuses = refuses
        self._job, self._ranks, self._spool, self._home = job, ranks, spool, home
        self._contents, self._numerics = contents, dict(numerics)
        self._copy = copy
        self.eager = eager  # all tensors are copied before `save` returns
        self._signatures = CallSignatures()
        self._writer = Background("checkpoint")
        self._unchanging = Unchanging()
        self._pending: PendingCheckpoint | None = None
        self._newest: str | None = None  # ID of the newest checkpoint that was committed or restored
        self._fenced: Fenced | None = None  # a later attempt has started, so that this one must end
        self._missed = 0  # checkpoints in a row that could not be written
        self._proved = False  # at least one lazy copy of this training was consistent
        self.retained: int | None = None  # the step of a checkpoint that no rule deletes
        self.cost = Cost()
        self.due = False  # an inconsistent copy was discarded: save again at the next step

    @property
    def busy(self) -> bool:
        """Return True as long as the newest checkpoint is being copied or written."""
        return self._pending is not None or self._writer.busy

    @property
    def newest(self) -> str | None:
        """Return the ID of the newest checkpoint that this process has committed or restored; None if there is none."""
        return self._newest

    def saved_at(self, step: int) -> str | None:
        """Return the ID of the checkpoint that this attempt committed at `step`; None if there is none."""
        id = checkpoint_id(step, self._job.attempt)
        return id if any(each.id == id for each in self._home.committed()) else None

    def set_aside(self, only: str | None = None) -> None:
        """Quarantine all committed checkpoints, or `only` that with this ID: files are kept, nothing resumes from them.

        Call it on rank 0.
        """
        for id in [only] if only else [each.id for each in self._home.committed()]:
            self._home.set_aside(id)
        self._newest = None

    def watch_calls_again(self) -> None:
        """Go on recording how modules are called, after `nn.Module.__call__` was replaced."""
        self._signatures.watch_again()

    def check(self) -> None:
        """Raise DaylightError if the state has a value that a checkpoint cannot hold; call it before training."""
        self._contents.check()

    @CLOCK.part("checkpoint")
    def save(self, position: Position) -> None:
        """Start to save a checkpoint of the training as it is at `position`.

        Forward and backward passes may run meanwhile. Call `settle` before anything changes weights, optimizer or other
        state that the checkpoint holds.
        """
        stalled = Stopwatch()
        with stalled:
            per_rank = self._contents.gather()
        if self._ranks.rank == 0:
            # Until a lazy copy has proved consistent, the best model so far is copied eagerly.
            lazily = not self.eager and (self._proved or not position.metrics)
            self._begin_if_it_can(position, per_rank, stalled, lazily)

    def settle(self) -> None:
        """Wait until a started checkpoint is copied; call it before anything changes weights or other saved state.

        If the model's forward pass has changed tensors during the copy, the checkpoint is discarded and `due` is set.
        Raises Fenced if a later attempt of the trial has started.
        """
        if self._fenced is not None:
            raise self._fenced
        pending, self._pending = self._pending, None
        if pending is None:
            return
        with CLOCK.part("checkpoint"), pending.stalled:
            true = pending.copying.join()
            if true:
                self._writer.begin(partial(self._write, pending))
        self._proved = self._proved or (true and pending.lazily)
        if not true:  # something wrote to a parameter outside of the update, such as WGAN's clamping
            pending.copying.done()
            self.eager = self.due = True
            self._spool.say(Note(text="the model's forward pass changes its weights: checkpoints are copied at once"))

    @CLOCK.part("checkpoint")
    def finish(self, position: Position) -> None:
        """Commit a final checkpoint before training ends or stops; each rank returns only after the commit.

        Raises CheckpointFailed if it cannot be written after several tries, as the work would be lost.
        """
        per_rank = self._contents.gather()
        if self._ranks.rank == 0:
            self._begin(position, per_rank, Stopwatch(), lazily=False)
            pending, self._pending = self._pending, None
            assert pending is not None
            self._writer.wait()
            try:
                self._write_at_last(pending)
            finally:
                pending.copying.done()
        self._ranks.barrier()  # no rank continues, and so none exits, before the manifest is committed

    def close(self) -> None:
        """Wait up to `LAST_WORDS_S` seconds for a checkpoint in progress, before this rank exits with an error.

        Errors of the checkpoint are ignored, as the rank fails with another one already.
        """
        with contextlib.suppress(Exception):  # this rank is failing with an error already
            self.settle()
            self._writer.wait(LAST_WORDS_S)

    def restore(self, schedules_know_length: bool = False) -> Manifest | None:
        """Restore the attempt's resume checkpoint, or an earlier one if that is damaged.

        Return the manifest of the checkpoint, None for a fresh start. A checkpoint of step 0 holds only weights of
        another trial (a warm start): they are loaded, and None is returned. `schedules_know_length` means that learning
        rate schedules depend on the length of the training: if `--epochs` or `--steps` has changed, they are rebuilt
        for the new length and advanced. Raises PlaceUnavailable if the storage cannot be reached after several tries.
        """
        chosen = self._choose_retried() if self._ranks.rank == 0 else None
        manifest: Manifest | None = self._ranks.broadcast_object(chosen)
        if manifest is not None and manifest.step:
            self._signatures.restore(manifest.state["training"].get("signatures", {}))
        elif self._ranks.rank == 0:
            self._signatures.watch()
        if manifest is not None and manifest.origin:
            return None
        if manifest is not None and manifest.step == 0:
            missing = self._contents.load_weights(manifest, Read(self._home, manifest))
            text = "begins with the weights of another trial"
            if missing:
                text += f", except {listed(missing, SHOWN)}, which it has not, or in another shape: they begin anew"
            self._spool.say(Note(text=text))
            return None
        if manifest is not None:
            changed = _changes(manifest.params, self._job.params)
            longer = schedules_know_length and self._has_other_length(manifest)
            self._contents.load(manifest, Read(self._home, manifest), others=bool(changed) or longer)
            if longer:
                text = "the schedule follows from the length of the training: from here on it is that of the new length"
                self._spool.say(Note(text=text))
            self._newest = manifest.id
            if changed:
                text = f"begins from checkpoint {manifest.id} of other hyperparameters: {changed}"
                self._spool.say(Note(text=f"{text}; weights and moments are the checkpoint's, the rest is its own"))
        return manifest

    def _has_other_length(self, manifest: Manifest) -> bool:
        """Return True if the training that saved the checkpoint had other values of `--epochs` or `--steps`."""
        before, config = manifest.state["training"].get("length"), self._job.config
        return before is not None and before != [config.epochs, config.steps]

    def restore_best(self) -> Manifest:
        """Restore the committed checkpoint with the best value of `--metric`, and return its manifest.

        If no checkpoint has a finite value, the newest is restored. All ranks call it after `finish`.
        """
        chosen = RETRY.call(self._choose_best, on=OSError) if self._ranks.rank == 0 else None
        manifest: Manifest = self._ranks.broadcast_object(chosen)
        if manifest.id != self._newest:
            self._contents.load(manifest, Read(self._home, manifest))
        return manifest

    def restore_upto(self, step: int) -> Manifest | None:
        """Restore this training's newest intact checkpoint whose step is at most `step`, and return its manifest.

        Return None if there is none. Used to go back while the training runs; all ranks call it.
        """
        self.settle()
        self._writer.wait()
        limit = step, self._job.attempt
        chosen = self._home.newest_verified(upto=limit)[0] if step and self._ranks.rank == 0 else None
        manifest: Manifest | None = self._ranks.broadcast_object(chosen)
        if manifest is not None:
            self._contents.load(manifest, Read(self._home, manifest))
        return manifest

    def _choose_best(self) -> Manifest:
        committed, metric = self._home.committed(), self._job.config.metric
        ranked = [each for each in committed if math.isfinite(metric.cost(each.validation))]
        return min(ranked, key=lambda each: metric.cost(each.validation), default=committed[-1])

    # Saving

    def _begin_if_it_can(self, position: Position, per_rank: PerRankState, stalled: Stopwatch, lazily: bool) -> None:
        if self._missed and self._writer.busy:
            return  # a hanging storage must not stall training repeatedly
        if not position.metrics:  # a checkpoint that may be the best so far takes the second buffer set
            with stalled:
                self._writer.wait()  # so that a kill costs at most one interval and the checkpoint being written
        try:
            self._begin(position, per_rank, stalled, lazily)
        except MemoryError as error:
            self._miss(position, described(error))

    def _begin(self, position: Position, per_rank: PerRankState, stalled: Stopwatch, lazily: bool) -> None:
        with stalled:
            self.settle()
            state, parts = self._contents.split(per_rank)
            state["training"] = self._facts(position)
            self._pending = PendingCheckpoint(position, state, self._copy.begin(parts, lazily), stalled, lazily)
        self.due = False

    def _facts(self, position: Position) -> dict[str, Any]:
        config = self._job.config
        signatures = self._signatures.state(self._contents.modules_by_name())
        return {**position.facts, "length": [config.epochs, config.steps], "signatures": signatures}

    def _write(self, pending: PendingCheckpoint) -> None:
        """Write and commit a checkpoint and delete superseded ones; it runs in the background thread.

        After an error this checkpoint is lost, but the training goes on.
        """
        try:
            self._try_to_write(pending)
        except Fenced as fenced:
            self._fenced = fenced
        except Exception as error:  # storage backends raise their own classes
            self._discard(pending.position)
            self._miss(pending.position, described(error))
        finally:
            pending.copying.done()

    def _miss(self, position: Position, reason: str) -> None:
        self._missed += 1
        if self._missed == 1:  # warn once: a full disk stays full for long
            text = f"checkpoint at step {position.step} could not be written: {reason}; training goes on"
            self._spool.say(Note(level="warning", text=text))

    def _write_at_last(self, pending: PendingCheckpoint) -> None:
        waits = RETRY.waits()
        while True:
            try:
                self._try_to_write(pending)
                return
            except Fenced:
                raise
            except Exception as error:
                self._discard(pending.position)
                pause = next(waits, None)
                if pause is None:
                    way_out = "Make room" if getattr(error, "errno", None) in _FULL else "Put that right"
                    raise CheckpointFailed(f"{self._lost(pending.position, described(error))}. {way_out}") from error
            time.sleep(pause)

    def _lost(self, position: Position, reason: str) -> str:
        """Return the error message for a final checkpoint that could not be written; `reason` is the storage error."""
        newest = f"the newest is {self._newest}" if self._newest else "there is none before it"
        what = f"the last checkpoint, at step {position.step}, could not be written to {self._home.where}"
        return f"{what}: {reason}; {newest}"

    def _try_to_write(self, pending: PendingCheckpoint) -> None:
        name = checkpoint_id(pending.position.step, self._job.attempt)
        began = time.monotonic()
        pending.copying.arrived()
        self._must_be_newest()
        parts = self._unchanging.sort(pending.copying.copies)
        written = [self._shared(name, part, pieces(parts.pop(part))) for part in list(parts) if part.endswith(FROZEN)]
        own = {part: pieces(tensors) for part, tensors in parts.items()}
        self._require_space(sum(map(size_of, own.values())))
        written += [self._home.write(name, part, data) for part, data in own.items()]
        cost = Cost(pending.stalled.seconds, time.monotonic() - began)
        self._commit(pending.position, pending.state, written, cost)

    def _shared(self, checkpoint: str, name: str, data: Data) -> Part:
        """Store the frozen (untrained) tensors of a checkpoint as part `name`; return its entry for the manifest.

        If another checkpoint has a part with the same bytes, its file is used.
        """
        digested = Digesting()
        for piece in data:
            digested.take(piece)
        part = digested.part(name)
        if not self._home.reuse(checkpoint, part):
            self._require_space(part.size)
            self._home.write(checkpoint, name, data)
        return part

    def _must_be_newest(self) -> None:
        """Raise Fenced if a later attempt of this trial has started: only the latest may change checkpoints."""
        claimed = self._home.claimed()
        if claimed > self._job.attempt:
            raise Fenced(f"attempt {self._job.id} was followed by attempt {claimed}: it ends here")

    def _require_space(self, needed: int) -> None:
        """Raise OSError if the disk has less than `needed` bytes, even after superseded checkpoints were deleted."""
        if self._free_space() <= needed:
            self._prune()
            if self._free_space() <= needed:
                room = f"{needed / 1e3:,.0f} kB needed in {self._home.where}, {self._free_space() / 1e3:,.0f} kB free"
                raise OSError(errno.ENOSPC, f"No space left on device ({room})")

    def _free_space(self) -> float:
        free = self._home.free()
        return math.inf if free is None else free

    def _discard(self, position: Position) -> None:
        """Delete the files of a checkpoint that could not be written, unless this step has a committed checkpoint.

        Some files of the committed checkpoint may have been overwritten. A resume detects that by digests, and uses the
        checkpoint before it.
        """
        id = checkpoint_id(position.step, self._job.attempt)
        if id != self._newest:
            with contextlib.suppress(Exception):
                self._home.discard(id)

    def _commit(self, position: Position, state: dict[str, Any], written: list[Part], cost: Cost) -> None:
        job = self._job
        manifest = Manifest(
            experiment=job.experiment,
            trial=job.trial,
            uid=job.uid,
            attempt=job.attempt,
            step=position.step,
            epoch=position.epoch,
            at=time.time(),
            world=self._ranks.size,
            seed=job.config.seed,
            params=job.params,
            snapshot=job.snapshot,
            numerics=self._numerics,
            metrics=position.metrics,
            parts=tuple(written),
            state=state,
        )
        self._must_be_newest()
        self._home.commit(manifest)
        self._newest = manifest.id
        if self._missed:
            self._spool.say(Note(text=f"checkpoints are written again, from step {position.step} on"))
            self._missed = 0
        self.cost = cost
        CLOCK.wrote(manifest.bytes, cost.write)
        self._spool.say(
            Committed(
                id=manifest.id,
                step=manifest.step,
                epoch=manifest.epoch,
                bytes=manifest.bytes,
                seconds=cost.write,
                stall=cost.stall,
            )
        )
        self._prune()

    def _prune(self) -> None:
        config = self._job.config
        with contextlib.suppress(Exception):  # an old checkpoint that cannot be deleted does no harm
            line = [manifest for manifest in self._home.committed() if self._comes_from(manifest)]
            for old in retention.expendable(line, config.keep, config.metric):
                if old.step != self.retained:
                    self._home.discard(old.id)

    def _comes_from(self, manifest: Manifest) -> bool:
        """Return True if this training saved the checkpoint, or resumed from it directly or through later ones.

        Return False for checkpoints that a rollback of the trial has discarded.
        """
        pinned = self._job.resume_from
        return manifest.attempt == self._job.attempt or (
            pinned is not None and manifest.order <= checkpoint_order(pinned)
        )

    # Restoring

    def _choose_retried(self) -> Manifest | None:
        try:
            return RETRY.call(self._choose, on=OSError)
        except OSError as error:
            text = f"the checkpoints in {self._home.where} cannot be reached: {described(error)}"
            raise PlaceUnavailable(text) from error

    def _choose(self) -> Manifest | None:
        self._must_be_newest()
        self._home.fence(self._job.attempt)
        self._home.sweep(self._job.attempt)
        pinned = self._job.resume_from
        if pinned is None:
            return None
        step, _ = wanted = checkpoint_order(pinned)
        found, problems = self._home.newest_verified(fence=self._job.attempt, upto=wanted)
        while found is not None and found.step and (reason := self._refuses(found)):
            self._home.set_aside(found.id)
            problems.append(f"checkpoint {found.id} is set aside: {reason}")
            found, more = self._home.newest_verified(fence=self._job.attempt, upto=wanted)
            problems += more
        if found is None or found.id != pinned:
            what = "; ".join(problems) or f"checkpoint {pinned} is not in {self._home.where}"
            start = f"checkpoint {found.id}" if found else "the beginning"
            again = f"steps {found.step + 1 if found else 1} to {step} are trained again"
            self._spool.say(Note(level="warning", text=f"{what}; training goes on from {start}, {again}"))
        return found


def _changes(before: Mapping[str, Value], now: Mapping[str, Value]) -> str:
    """Return the hyperparameters that differ as text, such as `lr 0.1 -> 0.08`; "" if all are equal."""
    both = [(name, before.get(name), now.get(name)) for name in sorted({*before, *now})]
    # NaN counts as equal to NaN, and 1 as equal to 1.0.
    return ", ".join(f"{name} {a} -> {b}" for name, a, b in both if a != b and repr(a) != repr(b))


def described(error: Exception) -> str:
    """Return the message of an error, without the path if it is an OSError."""
    return str((error.strerror if isinstance(error, OSError) else None) or error or type(error).__name__)
