"""What a checkpoint of a training holds, how the ranks save it together, and how it comes back to the last bit.

Model, optimizer, schedule, scaler and averaged weights are equal on all ranks. What is each rank's own, the buffers of
its logical ranks and (with `--rng stream`) its random states, rank 0 gathers; so it alone writes. With derived seeds
random states follow from seed and step, and the place in the data is the step.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from kernel_backend.checkpoints import retention
from kernel_backend.checkpoints.base import Checkpoints, Manifest, Part, checkpoint_id, order_of
from kernel_backend.checkpoints.writer import decode, flatten, pieces, unflatten
from kernel_backend.model.job import Job
from kernel_backend.model.reports import Committed, Note
from kernel_backend.runner.link import Spool
from kernel_backend.runner.logical import LogicalRanks
from kernel_backend.runner.random_states import RandomStates
from kernel_backend.runner.ranks import Ranks
from kernel_backend.runner.saving import Background, Copying, Cost, HostCopy, Parts, Stopwatch

LAST_WORDS_S = 20.0  # what a checkpoint under way gets when its rank must end


class Stateful(Protocol):
    """A part of a training that a checkpoint holds."""

    def state_dict(self) -> dict[str, Any]:
        """Its state: tensors, numbers and texts."""

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Be in this state again."""


class Moment(NamedTuple):
    """Where a training stands.

    `metrics` are those of a validation at this step, `facts` is whatever JSON the loop wants back.
    """

    step: int
    epoch: float
    metrics: dict[str, float]
    facts: dict[str, Any]


class Draft(NamedTuple):
    """A checkpoint that is being copied."""

    moment: Moment
    state: dict[str, Any]
    copying: Copying
    stalled: Stopwatch
    last: bool  # no other will follow

    @property
    def bytes(self) -> int:
        """The size of all its tensors."""
        return sum(tensor.nbytes for tensors in self.copying.copies.values() for tensor in tensors.values())


class Checkpointer:
    """Saves and restores one training; `save`, `finish` and `restore` are called by all ranks at the same step."""

    def __init__(
        self,
        job: Job,
        ranks: Ranks,
        spool: Spool,
        home: Checkpoints,
        parts: Mapping[str, Stateful],
        logical: LogicalRanks,
        streams: RandomStates | None,
        numerics: Mapping[str, str],
        copy: HostCopy,
        eager: bool,
    ) -> None:
        """`streams` are random states, where they do not follow from the seed; `eager` copies nothing lazily."""
        self._job, self._ranks, self._spool, self._home = job, ranks, spool, home
        self._parts, self._logical, self._streams, self._numerics = parts, logical, streams, dict(numerics)
        self._copy, self._eager = copy, eager
        self._writer = Background("checkpoint")
        self._draft: Draft | None = None
        self._newest: str | None = None  # the newest that is known to be whole
        self.cost = Cost()
        self.owed = False  # a copy had to be thrown away: the next step's is wanted

    @property
    def busy(self) -> bool:
        """Whether the newest checkpoint is still on its way to the disk."""
        return self._draft is not None or self._writer.busy

    def save(self, moment: Moment) -> None:
        """Begin a checkpoint of this moment. Training may go on; `settle` before anything changes."""
        everyones = self._gather()
        if self._ranks.rank == 0:
            self._begin(moment, everyones, last=False)

    def settle(self) -> None:
        """Call this before weights, optimizer or anything else that a checkpoint holds is changed."""
        draft, self._draft = self._draft, None
        if draft is None:
            return
        with draft.stalled:
            true = draft.copying.join()
            if true:
                self._writer.begin(partial(self._write, draft))
        if not true:  # something wrote to a parameter outside of the update, as WGAN's clamping does
            self._eager = self.owed = True

    def finish(self, moment: Moment) -> None:
        """Commit a checkpoint of this moment, the last one; returns when all ranks know that it is in place."""
        everyones = self._gather()
        if self._ranks.rank == 0:
            self._begin(moment, everyones, last=True)
            self.settle()
            self._writer.wait()
        self._ranks.barrier()  # nobody goes on, and so nobody exits, before the manifest is in place

    def close(self) -> None:
        """Let a checkpoint that is under way come to its end, where that takes no longer than some seconds."""
        with contextlib.suppress(Exception):  # this rank ends by an error already
            self.settle()
            self._writer.wait(LAST_WORDS_S)

    def restore(self) -> Manifest | None:
        """Bring back the pinned checkpoint, or the one before where it is damaged; None where training begins anew."""
        chosen = self._choose() if self._ranks.rank == 0 else None
        manifest: Manifest | None = self._ranks.broadcast_object(chosen)
        if manifest is not None:
            self._load(manifest)
            self._newest = manifest.id
        return manifest

    # Saving

    def _gather(self) -> list[tuple[dict[int, dict[str, Tensor]], Any]]:
        """What is each rank's own, of all ranks: buffers by logical rank, and random states."""
        if not self._logical and self._streams is None:
            return []
        own = self._logical.buffers(), self._streams.state_dict() if self._streams else None
        return self._ranks.all_gather_object(own)

    def _begin(self, moment: Moment, everyones: list[Any], last: bool) -> None:
        stalled = Stopwatch()
        with stalled:
            self.settle()
            self._writer.wait()  # its memory is used again
            state, parts = self._state(everyones)
            state["training"] = moment.facts
            copying = self._copy.begin(parts, lazily=not (last or self._eager))
            self._draft = Draft(moment, state, copying, stalled, last)
        self.owed = False

    def _state(self, everyones: list[Any]) -> tuple[dict[str, Any], Parts]:
        state: dict[str, Any] = {}
        parts: dict[str, dict[str, Tensor]] = {}
        for name, part in self._parts.items():
            state[name], parts[name] = flatten(part.state_dict())
        for rank, (buffers, random) in enumerate(everyones):
            parts |= {f"buffers-{logical}": tensors for logical, tensors in buffers.items()}
            if random is not None:
                state[f"random-{rank}"], parts[f"random-{rank}"] = flatten(random)
        # Buffers change in the next forward pass already; those that were gathered are copies.
        buffers = parts.get("buffers-0", {})
        parts["model"] = {name: buffers.get(name, tensor) for name, tensor in parts["model"].items()}
        return state, {name: tensors for name, tensors in parts.items() if tensors}

    def _write(self, draft: Draft) -> None:
        """Write, commit and prune; a full disk costs a checkpoint and never the training."""
        name = checkpoint_id(draft.moment.step, self._job.attempt)
        began = time.monotonic()
        draft.copying.arrived()
        problem = self._short_of_room(draft.bytes)
        try:
            if problem is None:
                copies = draft.copying.copies.items()
                written = [self._home.write(name, part, pieces(tensors)) for part, tensors in copies]
                self._commit(draft, written, time.monotonic() - began)
        except OSError as error:
            problem = f"{error.strerror or error} ({draft.bytes / 1e6:.1f} MB needed in {self._home.where})"
        if problem is not None:
            self._give_up(draft, problem)

    def _short_of_room(self, needed: int) -> str | None:
        """A sentence where the disk has no room for so many bytes, even without what may be deleted."""
        free = self._home.free()
        if free is None or free > needed:
            return None
        self._prune()
        free = self._home.free()
        if free is None or free > needed:
            return None
        return f"No space left on device ({needed / 1e6:.1f} MB needed in {self._home.where}, {free / 1e6:.1f} MB free)"

    def _commit(self, draft: Draft, written: list[Part], seconds: float) -> None:
        moment, job = draft.moment, self._job
        manifest = Manifest(
            experiment=job.experiment,
            trial=job.trial,
            attempt=job.attempt,
            step=moment.step,
            epoch=moment.epoch,
            at=time.time(),
            world=self._ranks.size,
            seed=job.config.seed,
            params=job.params,
            snapshot=job.snapshot,
            numerics=self._numerics,
            metrics=moment.metrics,
            parts=tuple(written),
            state=draft.state,
        )
        self._home.commit(manifest)
        self._newest = manifest.id
        self.cost = Cost(draft.stalled.seconds, seconds)
        self._spool.say(
            Committed(
                id=manifest.id,
                step=manifest.step,
                epoch=manifest.epoch,
                bytes=manifest.bytes,
                seconds=seconds,
                stall=draft.stalled.seconds,
            )
        )
        self._prune()

    def _give_up(self, draft: Draft, problem: str) -> None:
        step = draft.moment.step
        with contextlib.suppress(OSError):
            self._home.discard(checkpoint_id(step, self._job.attempt))
        then = f"the newest is {self._newest or 'none'}" if draft.last else "training goes on"
        text = f"checkpoint at step {step} could not be written: {problem}; {then}"
        self._spool.say(Note(level="warning", text=text))

    def _prune(self) -> None:
        config = self._job.config
        with contextlib.suppress(OSError):
            line = [manifest for manifest in self._home.committed() if self._comes_from(manifest)]
            for old in retention.expendable(line, config.keep, config.metric):
                self._home.discard(old.id)

    def _comes_from(self, manifest: Manifest) -> bool:
        """Whether this training's state comes from that one, and not from one that it went back from."""
        pinned = self._job.resume_from
        return manifest.attempt == self._job.attempt or (pinned is not None and manifest.order <= order_of(pinned))

    # Coming back

    def _choose(self) -> Manifest | None:
        self._home.sweep(self._job.attempt)
        pinned = self._job.resume_from
        if pinned is None:
            return None
        step, _ = wanted = order_of(pinned)
        found, problems = self._home.newest_verified(fence=self._job.attempt, upto=wanted)
        if found is None or found.id != pinned:
            what = "; ".join(problems) or f"checkpoint {pinned} is not in {self._home.where}"
            start = f"checkpoint {found.id}" if found else "the beginning"
            again = f"steps {found.step + 1 if found else 1} to {step} are trained again"
            self._spool.say(Note(level="warning", text=f"{what}; training goes on from {start}, {again}"))
        return found

    def _load(self, manifest: Manifest) -> None:
        for name, part in self._parts.items():
            part.load_state_dict(self._read(manifest, name))
        for rank in self._logical.mine if self._logical else ():
            own = f"buffers-{rank}"
            self._logical.restore(rank, self._tensors(manifest, own if manifest.part(own) else "buffers-0"))
        if self._streams and f"random-{self._ranks.rank}" in manifest.state:
            self._streams.load_state_dict(self._read(manifest, f"random-{self._ranks.rank}"))

    def _read(self, manifest: Manifest, name: str) -> Any:
        return unflatten(manifest.state[name], self._tensors(manifest, name))

    def _tensors(self, manifest: Manifest, name: str) -> dict[str, Tensor]:
        return decode(self._home.read(manifest, name)) if manifest.part(name) else {}


class Optimizer:
    """An optimizer as a part of a checkpoint."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        """The state of every parameter, and the groups."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Be as it was saved: torch's own loading casts float32 states of half-precision parameters."""
        self._optimizer.load_state_dict(state)
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        indices = [index for group in state["param_groups"] for index in group["params"]]
        for parameter, index in zip(parameters, indices, strict=True):
            for key, saved in state["state"].get(index, {}).items():
                loaded = self._optimizer.state[parameter][key]
                if isinstance(saved, Tensor) and loaded.dtype != saved.dtype:
                    self._optimizer.state[parameter][key] = saved.to(loaded.device)
