"""Collect and restore the full state of a training, bit for bit.

Model, optimizer, schedule, scaler and averaged weights are equal on all ranks. Rank 0 gathers the state that differs
per rank: the buffers of logical ranks and, with `--rng stream`, random states. Therefore only rank 0 writes. With
derived seeds, random states follow from seed and step, and the place in the data is the step number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from kernel_backend.checkpoints.base import Checkpoints, Manifest, whose
from kernel_backend.checkpoints.writer import flatten, must_hold, tensors_of, unflatten
from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.checkpoint.frozen import HoldsFrozen, split_frozen
from kernel_backend.runner.checkpoint.saving import Parts
from kernel_backend.runner.checkpoint.stateful import Model, Optimizer, Schedule, Stateful
from kernel_backend.runner.checkpoint.tensor_stream import stream_tensors
from kernel_backend.runner.logical_ranks import LogicalRanks
from kernel_backend.runner.ranks.backends import Ranks


@dataclass(frozen=True)
class Read:
    """Reader of the parts of one checkpoint, whose bytes it verifies."""

    home: Checkpoints
    manifest: Manifest

    def __call__(self, name: str) -> bytes:
        """Return the bytes of a checkpoint part.

        Raises CheckpointDamaged if they are not as saved, and NotFound if the checkpoint was deleted meanwhile.
        """
        return self.home.read(self.manifest, name)

    def tensors(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the tensor for each tensor of a checkpoint part, with one in memory at a time.

        Raises CheckpointDamaged, at the end at the latest, if the bytes are not as saved.
        """
        part = self.manifest.part(name)
        return stream_tensors(self.home.pieces(self.manifest, name), part.size if part else 0)


class OfRank(Stateful, Protocol):
    """State that each rank keeps for itself, such as its random states, and that checkpoints hold once per rank."""

    def begin(self, seed: int, rank: int, step: int) -> None:
        """Set the initial state of rank `rank` at `step`; called if the checkpoint has no state for this rank."""


class PerRankState(NamedTuple):
    """State that differs between ranks, gathered on rank 0: buffers by logical rank, random states by rank.

    Logical ranks are the equal shares of a global batch, whose number does not depend on that of the processes.
    """

    buffers: Mapping[int, Mapping[str, Tensor]]
    random: Sequence[Any]


NOBODYS = PerRankState({}, ())


class Contents(Protocol):
    """State of a training over all of its ranks, as a Checkpointer saves and restores it."""

    def gather(self) -> PerRankState:
        """Return on rank 0 the state that differs between ranks, on other ranks an empty one; all ranks call it."""

    def modules_by_name(self) -> Mapping[str, nn.Module]:
        """Return the torch modules in the state, by name."""

    def check(self) -> None:
        """Raise DaylightError if the state has a value that a checkpoint cannot hold; the error names the first."""

    def split(self, per_rank: PerRankState) -> tuple[dict[str, Any], Parts]:
        """Return the state to save: a JSON dict, and tensors as {checkpoint part: {tensor name: tensor}}.

        `per_rank` is the result of `gather`. Raises DaylightError for a value that is neither JSON nor a tensor.
        """

    def load(self, manifest: Manifest, read: Read, others: bool = False) -> None:
        """Restore a checkpoint on this rank; `read` returns the bytes of its parts.

        `others` is True if the checkpoint was saved with other hyperparameters or for another length of the training.
        """

    def load_weights(self, manifest: Manifest, read: Read) -> list[str]:
        """Load only a checkpoint's weights (a warm start); return names of model tensors that the checkpoint lacks."""


class TrainingContents:
    """State of one training over all of its ranks, which checkpoints save and restore."""

    def __init__(
        self,
        parts: Mapping[str, Stateful],
        logical: LogicalRanks,
        streams: OfRank | None,
        ranks: Ranks,
        seed: int,
        matching_weights: bool = False,
    ) -> None:
        """Set up the state: its `parts` by name, and the buffers of the `logical` ranks.

        `streams` is state that each rank has for itself, such as random states, or None. With `matching_weights`,
        weights of another model may be loaded for a warm start, as far as names and shapes match.
        """
        self._matching_weights = matching_weights
        self._parts, self._logical, self._streams = parts, logical, streams
        self._ranks, self._seed = ranks, seed

    def gather(self) -> PerRankState:
        """Return on rank 0 the state that differs between ranks, on other ranks an empty one; all ranks call it."""
        random = self._ranks.all_gather_object(self._streams.state_dict()) if self._streams else ()
        return PerRankState(self._logical.gather(self._ranks), random)

    def modules_by_name(self) -> Mapping[str, nn.Module]:
        """Return the torch modules in the state, by name."""
        return {name: part.module for name, part in self._parts.items() if isinstance(part, Model)}

    def check(self) -> None:
        """Raise DaylightError if the state has a value that a checkpoint cannot hold; the error names the first."""
        _, parts = self.split(NOBODYS)
        for tensors in [*parts.values(), self._logical.live()]:
            for name, tensor in tensors.items():
                must_hold(name, tensor)

    def split(self, per_rank: PerRankState) -> tuple[dict[str, Any], Parts]:
        """Return the state to save: a JSON dict, and tensors as {checkpoint part: {tensor name: tensor}}.

        `per_rank` is the result of `gather`. Raises DaylightError for a value that is neither JSON nor a tensor.
        """
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
        """Restore a checkpoint on this rank; raise CheckpointDamaged if a part is damaged.

        `others` is True if the checkpoint was saved with other hyperparameters or for another length of the training.
        Then optimizers and schedules keep the options of this trial.
        """
        tensors = partial(self.tensors, manifest, read)
        for name, part in self._parts.items():
            if name.startswith("beside") and name not in manifest.state:  # of a version that did not hold it
                continue
            _load(part, unflatten(manifest.state[name], tensors(name)), others)
        self._logical.restore({rank: tensors(_buffers(rank)) for rank in {0, *self._logical.mine}})
        if self._streams is None:
            return
        own = _random(self._ranks.rank)
        if own in manifest.state:
            self._streams.load_state_dict(unflatten(manifest.state[own], tensors(own)))
        else:  # the checkpoint was saved by fewer ranks
            self._streams.begin(self._seed, self._ranks.rank, manifest.step)

    def tensors(self, manifest: Manifest, read: Read, name: str) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint part by name; {} if the checkpoint lacks the part."""
        return tensors_of(manifest, name, read)

    def load_weights(self, manifest: Manifest, read: Read) -> list[str]:
        """Load only a checkpoint's weights (a warm start); return names of model tensors that it lacks.

        Raises CheckpointDamaged, or InvalidDefinition if the weights belong to another model.
        """
        name = whose(manifest.parts[0].name)
        state = unflatten(manifest.state["model"], tensors_of(manifest, name, read))
        return begin_with(self._parts["model"], state, self._matching_weights)


def begin_with(part: Stateful, state: dict[str, Any], matching: bool) -> list[str]:
    """Load a model's part of another trial's checkpoint; return names of model tensors that it lacks.

    With `matching`, it may be of another model, as far as names and shapes match. Raises InvalidDefinition if the
    weights belong to another model.
    """
    if matching and isinstance(part, Model):
        missing = part.load_matching(state)
        if len(missing) == len(part.state_dict()):
            raise InvalidDefinition(
                f"no weights of those that it begins with match the model's in name and shape: they are "
                f"{', '.join(list(state)[:3])}, and the model has {', '.join(missing[:3])}"
            )
        return missing
    try:
        part.load_state_dict(state)
        return []
    except (RuntimeError, AttributeError) as error:  # the checkpoint has other shapes or names
        raise InvalidDefinition(f"the weights that it begins with are of another model: {error}") from error


def _load(part: Stateful, state: dict[str, Any], others: bool) -> None:
    """Restore one checkpoint part from `state`, which is freed on return, before the state of the next part is read.

    `others` means that the state was saved with other hyperparameters or for another length of the training.
    """
    if others and isinstance(part, Optimizer | Schedule):
        part.take_over(state)
    else:
        part.load_state_dict(state)


def _buffers(rank: int) -> str:
    return f"buffers-{rank}"


def _random(rank: int) -> str:
    return f"random-{rank}"
