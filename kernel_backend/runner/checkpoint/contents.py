"""Collect and restore the full state of a training, bit for bit.

Model, optimizer, schedule, scaler and averaged weights are equal on all ranks. Rank 0 gathers the state that differs
per rank: the buffers of logical ranks and, with `--rng stream`, random states. Therefore only rank 0 writes. With
derived seeds, random states follow from seed and step, and the position in the data is the step number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from kernel_backend.checkpoints.base import Manifest, whose
from kernel_backend.checkpoints.writer import flatten, must_hold, tensors_of, unflatten
from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.checkpoint.frozen import HoldsFrozen, split_frozen
from kernel_backend.runner.checkpoint.saving import Parts
from kernel_backend.runner.checkpoint.stateful import Model, Optimizer, Schedule, Stateful
from kernel_backend.runner.logical_ranks import LogicalRanks
from kernel_backend.runner.ranks.backends import Ranks

Read = Callable[[str], bytes]  # returns the verified bytes of a part


class OfRank(Stateful, Protocol):
    """State that differs from rank to rank, such as the random states."""

    def begin(self, seed: int, rank: int, step: int) -> None:
        """Set the initial state of a rank that the checkpoint has no state for."""


class PerRankState(NamedTuple):
    """State that differs per rank, gathered on rank 0: buffers by logical rank, random states by rank."""

    buffers: Mapping[int, Mapping[str, Tensor]]
    random: Sequence[Any]


NOBODYS = PerRankState({}, ())


class Contents(Protocol):
    """State of a training over all of its ranks, which a Checkpointer saves and restores."""

    def gather(self) -> PerRankState:
        """Gather the per-rank state on rank 0; called by all ranks."""

    def check(self) -> None:
        """Raise DaylightError naming the first value that a checkpoint cannot hold."""

    def split(self, per_rank: PerRankState) -> tuple[dict[str, Any], Parts]:
        """Split the state into JSON and tensors by part; raise DaylightError for values that fit neither."""

    def load(self, manifest: Manifest, read: Read, others: bool = False) -> None:
        """Restore this checkpoint on this rank; `others` means that it was saved with other hyperparameters."""

    def load_weights(self, manifest: Manifest, read: Read) -> list[str]:
        """Load a checkpoint that holds weights only; return the names of the model's tensors that are not in it."""


class TrainingContents:
    """State of one training over all of its ranks."""

    def __init__(
        self,
        parts: Mapping[str, Stateful],
        logical: LogicalRanks,
        streams: OfRank | None,
        ranks: Ranks,
        seed: int,
        matching_weights: bool = False,
    ) -> None:
        """Set up the parts by name; `streams` is state that only this rank has, such as random states, or None.

        With `matching_weights`, weights of another model may be loaded for a warm start, as far as name and shape
        match.
        """
        self._matching_weights = matching_weights
        self._parts, self._logical, self._streams = parts, logical, streams
        self._ranks, self._seed = ranks, seed

    def gather(self) -> PerRankState:
        """Gather the per-rank state on rank 0; called by all ranks."""
        random = self._ranks.all_gather_object(self._streams.state_dict()) if self._streams else ()
        return PerRankState(self._logical.gather(self._ranks), random)

    def check(self) -> None:
        """Raise DaylightError naming the first value that a checkpoint cannot hold."""
        _, parts = self.split(NOBODYS)
        for tensors in [*parts.values(), self._logical.live()]:
            for name, tensor in tensors.items():
                must_hold(name, tensor)

    def split(self, per_rank: PerRankState) -> tuple[dict[str, Any], Parts]:
        """Split the training's state into JSON and tensors by part; raise DaylightError for values that fit neither."""
        state: dict[str, Any] = {}
        parts: dict[str, dict[str, Tensor]] = {}
        for name, part in self._parts.items():
            state[name], parts[name] = flatten(part.state_dict())
        for rank, random in enumerate(per_rank.random):
            state[_random(rank)], parts[_random(rank)] = flatten(random)
        for rank, buffers in per_rank.buffers.items():
            parts[_buffers(rank)] = dict(buffers)
        # Buffers change in the next forward pass already; those that were gathered are copies.
        first, model = parts.get(_buffers(0), {}), parts["model"]
        parts["model"] = {name: first.pop(name, tensor) for name, tensor in model.items()}
        for name, part in self._parts.items():
            if isinstance(part, HoldsFrozen):
                parts |= split_frozen(name, parts[name], part.frozen())
        return state, {name: tensors for name, tensors in parts.items() if tensors}

    def load(self, manifest: Manifest, read: Read, others: bool = False) -> None:
        """Restore this checkpoint on this rank; raise CheckpointDamaged if a part is damaged.

        `others` means that the checkpoint was saved with other hyperparameters: optimizer and schedule keep their own.
        """
        tensors = partial(self.tensors, manifest, read)
        for name, part in self._parts.items():
            state = unflatten(manifest.state[name], tensors(name))
            if others and isinstance(part, Optimizer | Schedule):
                part.take_over(state)
            else:
                part.load_state_dict(state)
        self._logical.restore({rank: tensors(_buffers(rank)) for rank in {0, *self._logical.mine}})
        if self._streams is None:
            return
        own = _random(self._ranks.rank)
        if own in manifest.state:
            self._streams.load_state_dict(unflatten(manifest.state[own], tensors(own)))
        else:  # the checkpoint was saved by fewer ranks
            self._streams.begin(self._seed, self._ranks.rank, manifest.step)

    def tensors(self, manifest: Manifest, read: Read, name: str) -> dict[str, Tensor]:
        """Return the tensors of a part of this checkpoint; an empty dict if it lacks the part."""
        return tensors_of(manifest, name, read)

    def load_weights(self, manifest: Manifest, read: Read) -> list[str]:
        """Load a checkpoint that holds weights only; return the names of the model's tensors that are not in it.

        Raises CheckpointDamaged, or InvalidDefinition if the weights belong to another model.
        """
        name = whose(manifest.parts[0].name)
        state = unflatten(manifest.state["model"], tensors_of(manifest, name, read))
        model = self._parts["model"]
        if self._matching_weights and isinstance(model, Model):
            missing = model.load_matching(state)
            if len(missing) == len(model.state_dict()):
                raise InvalidDefinition(
                    f"no weights of those that it begins with match the model's in name and shape: they are "
                    f"{', '.join(list(state)[:3])}, and the model has {', '.join(missing[:3])}"
                )
            return missing
        try:
            model.load_state_dict(state)
            return []
        except (RuntimeError, AttributeError) as error:  # the checkpoint has other shapes or names
            raise InvalidDefinition(f"the weights that it begins with are of another model: {error}") from error


def _buffers(rank: int) -> str:
    return f"buffers-{rank}"


def _random(rank: int) -> str:
    return f"random-{rank}"
