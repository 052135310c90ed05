"""Split the state of a sharded training into one checkpoint part per rank, and load it on any number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from kernel_backend.checkpoints.base import SHARD, Manifest
from kernel_backend.checkpoints.writer import decode, tensors_of
from kernel_backend.runner.checkpoint.contents import PerRankState, Read, TrainingContents
from kernel_backend.runner.checkpoint.saving import Parts
from kernel_backend.runner.checkpoint.stateful import Model
from kernel_backend.runner.sharded.rows import from_rows, own_rows

_SHAPES = "shards"  # key in the manifest's state: the shapes of each part's sharded tensors


class ShardedContents(TrainingContents):
    """State of a training in which each rank holds some rows of each parameter and of its optimizer state."""

    def split(self, per_rank: PerRankState) -> tuple[dict[str, Any], Parts]:
        """Return this rank's state as a JSON dict, and its tensors by checkpoint part and name.

        Sharded tensors are in parts such as `model.shard-1`; all other tensors are returned only on rank 0.
        """
        state, parts = super().split(per_rank)
        found: dict[str, dict[str, Tensor]] = {}
        state[_SHAPES] = {}
        for name, tensors in parts.items():
            sharded = {key: each for key, each in tensors.items() if isinstance(each, DTensor)}
            if sharded:
                state[_SHAPES][name] = {key: list(each.shape) for key, each in sharded.items()}
                found[f"{name}{SHARD}{self._ranks.rank}"] = {key: each.to_local() for key, each in sharded.items()}
            if self._ranks.rank == 0 and len(sharded) < len(tensors):
                found[name] = {key: each for key, each in tensors.items() if key not in sharded}
        return state, found

    def tensors(self, manifest: Manifest, read: Read, name: str) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint part by name; sharded tensors have only this rank's rows in memory."""
        shapes = manifest.state.get(_SHAPES, {}).get(name)
        if not shapes:
            return tensors_of(manifest, name, read)
        others = decode(read(name)) if manifest.part(name) is not None else {}
        return others | self._own(manifest, read, name, shapes)

    def _own(self, manifest: Manifest, read: Read, name: str, shapes: Mapping[str, list[int]]) -> dict[str, Tensor]:
        """Return the sharded tensors of checkpoint part `name`, by tensor name, each with this rank's rows.

        Of the stored shards, only those that overlap with these rows are read, one after the other. `shapes` has the
        shapes of the whole tensors, by tensor name.
        """
        mesh = next(each.device_mesh for each in self._model.parameters() if isinstance(each, DTensor))
        own = {key: own_rows(shape[0], self._ranks.size, self._ranks.rank) for key, shape in shapes.items()}
        found: dict[str, list[Tensor]] = {key: [] for key in shapes}
        shards = manifest.shards(name)
        for number, shard in enumerate(shards):
            theirs = {key: own_rows(shape[0], len(shards), number) for key, shape in shapes.items()}
            common = {key: _common(own[key], theirs[key]) for key in shapes}
            if any(common.values()):
                for key, tensor in read.tensors(shard):
                    rows = common[key]
                    found[key].append(_rows(tensor, rows.start - theirs[key].start, len(rows)))
        return {key: from_rows(_joined(found.pop(key), shape), shape, mesh) for key, shape in shapes.items()}

    @property
    def _model(self) -> nn.Module:
        model = self._parts["model"]
        assert isinstance(model, Model)
        return model.module


def _common(one: range, other: range) -> range:
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))


def _rows(tensor: Tensor, start: int, count: int) -> Tensor:
    """Return a copy of `count` rows from row `start` on, or the tensor itself if it has no other rows."""
    return tensor if count == len(tensor) else tensor[start : start + count].clone()


def _joined(pieces: list[Tensor], shape: list[int]) -> Tensor:
    if len(pieces) == 1:
        return pieces[0]
    return torch.cat(pieces) if pieces else torch.empty(0, *shape[1:])
