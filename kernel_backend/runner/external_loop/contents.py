"""Save and restore the values that a training loop, of a user or a framework, registers for its checkpoints.

The loop registers values one by one; each value is restored when it is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from kernel_backend.checkpoints.base import FROZEN, Manifest
from kernel_backend.checkpoints.writer import flatten, must_hold, tensors_of, unflatten
from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.checkpoint.contents import OfRank, PerRankState, Read, begin_with
from kernel_backend.runner.checkpoint.frozen import HoldsFrozen, split_frozen
from kernel_backend.runner.checkpoint.saving import Parts
from kernel_backend.runner.checkpoint.stateful import HoldsModules, Stateful, TakesOver
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.determinism.retained_state import RetainedState
from kernel_backend.runner.gradients.waiting import restore_gradients, waiting_gradients
from kernel_backend.runner.logical_ranks import LogicalRanks
from kernel_backend.runner.ranks.backends import Ranks
from kernel_backend.trained.skeleton import skeleton

_GRADIENTS = ".gradients"  # suffix of the part with a module's accumulated gradients
_KEPT = "kept"  # key of what the user's code keeps, beside a rank's random states
STRUCTURES = "structures"  # part with the pickled structures of the modules, for an export
_POSITION = "training"  # key of the loop's position in a manifest's state


class _Saved(NamedTuple):
    """Checkpoint to resume from; each part is restored when the user's code registers a value with the part's name."""

    manifest: Manifest
    tensors: Callable[[str], dict[str, Tensor]]  # returns the tensors of a part
    others: bool = False  # saved with other hyperparameters: optimizers and schedules keep this trial's

    @property
    def only_weights(self) -> bool:
        """Return True if the checkpoint is of another trial, from which only the weights are taken (a warm start)."""
        return self.manifest.step == 0


class RegisteredContents:
    """Content of a training's checkpoints: all values that the training has registered, on all ranks.

    When a value is registered, it is restored from the checkpoint to resume from.
    """

    def __init__(
        self,
        ranks: Ranks,
        seed: int,
        structures: bool = False,
        matching_weights: bool = False,
        own: OfRank | None = None,
    ) -> None:
        """Set up empty contents. With `structures`, checkpoints also say how the modules are put together.

        With `matching_weights`, weights of another model may be loaded for a warm start, as far as names and shapes
        match. `own` is what each rank has for itself, by default its random states.
        """
        self._ranks, self._seed, self._structures = ranks, seed, structures
        self._matching_weights = matching_weights
        self._parts: dict[str, Stateful] = {}
        self.modules: dict[str, nn.Module] = {}
        self._buffers: LogicalRanks | None = None  # of all modules; made anew for a further one
        self.missing: list[str] = []  # names of model tensors that the weights to begin with lack
        self._own_state = own or RandomStates()
        self.kept: RetainedState | None = None  # what the user's code keeps from step to step, once the training begins
        self._saved: _Saved | None = None

    def add(self, name: str, part: Stateful, module: nn.Module | None = None) -> bool:
        """Register `part`, which saves and restores the value called `name`, and restore it from the checkpoint.

        `module` is the value itself if it is a module. Return True if the value was restored to continue a training;
        False if there is no checkpoint with this name, or if only weights were taken from another trial. Raises
        InvalidDefinition if the name is in use.
        """
        if name in self._parts or name in (_POSITION, STRUCTURES) or name.endswith((FROZEN, _GRADIENTS)):
            raise InvalidDefinition(f"{name} is registered already: give this one another name")
        _, tensors = flatten(part.state_dict())
        for each, tensor in tensors.items():
            must_hold(f"{name}.{each}", tensor)
        self._parts[name] = part
        if module is not None:
            self.modules[name], self._buffers = module, None
        saved = self._saved
        if saved is None or name not in saved.manifest.state:
            return False
        state = unflatten(saved.manifest.state[name], saved.tensors(name))
        if saved.only_weights:
            self.missing += begin_with(part, state, self._matching_weights)
        elif saved.others and isinstance(part, TakesOver):
            part.take_over(state)
        else:
            part.load_state_dict(state)
        if module is not None:
            buffers = {
                rank: {key: each for key, each in saved.tensors(_buffers(rank)).items() if key.startswith(f"{name}.")}
                for rank in {0, self._ranks.rank}
            }
            self._logical({name: module}).restore(buffers)
            if not (saved.only_weights or saved.others):
                restore_gradients(module, saved.tensors(name + _GRADIENTS))
        return not saved.only_weights

    def restore_own(self) -> None:
        """Restore what each rank has for itself from the checkpoint to resume from; called when the loop begins.

        This is the rank's random states, and what the user's code keeps from step to step. Without a checkpoint that
        has them, every rank except 0 is reseeded, so that the ranks draw different numbers; the rest is as on rank 0.
        """
        rank = self._ranks.rank
        saved = self._saved
        if saved is not None and not saved.only_weights and (own := self._own(saved, rank)) is not None:
            self._own_state.load_state_dict(own)
        elif rank:
            step = 0 if saved is None else saved.manifest.step
            self._own_state.begin(self._seed, rank, step)
        if self.kept is not None and saved is not None and not saved.only_weights:
            own = self._own(saved, rank) or self._own(saved, 0) or {}
            self.kept.load_state_dict(own.get(_KEPT, {}))

    def _own(self, saved: _Saved, rank: int) -> dict[str, Any] | None:
        """Return what a checkpoint has of one rank alone; None if it was saved by fewer ranks."""
        name = f"random-{rank}"
        if name not in saved.manifest.state:
            return None
        found: dict[str, Any] = unflatten(saved.manifest.state[name], saved.tensors(name))
        return found

    # Called by a Checkpointer

    def gather(self) -> PerRankState:
        """Gather what each rank has for itself, with its modules' buffers, on rank 0; all ranks call it."""
        own = self._own_state.state_dict()
        if self.kept is not None and (kept := self.kept.state_dict()):
            own[_KEPT] = kept
        random = self._ranks.all_gather_object(own)
        self._buffers = self._buffers or self._logical(self.modules)
        return PerRankState(self._buffers.gather(self._ranks), random)

    def modules_by_name(self) -> Mapping[str, nn.Module]:
        """Return the torch modules in the state, by name; those of a program by the names of its variables."""
        held = [part.found() for part in self._parts.values() if isinstance(part, HoldsModules)]
        return {name: module for found in [self.modules, *held] for name, module in found.items()}

    def check(self) -> None:
        """Do nothing, as each part was checked when it was registered."""

    def split(self, per_rank: PerRankState) -> tuple[dict[str, Any], Parts]:
        """Return the state of all parts as a JSON dict, and tensors as {checkpoint part: {tensor name: tensor}}.

        `per_rank`, the result of `gather`, is included in both.
        """
        state: dict[str, Any] = {}
        parts: dict[str, dict[str, Tensor]] = {}
        for name, part in self._parts.items():
            state[name], parts[name] = flatten(part.state_dict())
        # Buffers change in the next forward pass already; those that were gathered are copies.
        first = dict(per_rank.buffers.get(0, {}))
        for name in self.modules:
            parts[name] = {key: first.pop(f"{name}.{key}", tensor) for key, tensor in parts[name].items()}
        for name, part in self._parts.items():
            if isinstance(part, HoldsFrozen):
                parts |= split_frozen(name, parts[name], part.frozen())
        if self._structures:
            found = {name: skeleton(module) for name, module in self.modules.items()}
            state[STRUCTURES], parts[STRUCTURES] = flatten(found)
        for name, module in self.modules.items():
            parts[name + _GRADIENTS] = waiting_gradients(module)
        for rank, random in enumerate(per_rank.random):
            if not random:  # a form that has none: its checkpoints are equal on any number of ranks
                continue
            state[f"random-{rank}"], parts[f"random-{rank}"] = flatten(random)
        for rank, buffers in per_rank.buffers.items():
            parts[_buffers(rank)] = dict(buffers) if rank else first
        return state, {name: tensors for name, tensors in parts.items() if tensors}

    def load(self, manifest: Manifest, read: Read, others: bool = False) -> None:
        """Remember the checkpoint to resume from; each part is restored from it when the part is registered.

        `others` is True if the checkpoint was saved with other hyperparameters: optimizers and schedules then keep this
        trial's options.
        """
        assert not self._parts, "a checkpoint is chosen before anything is registered"
        self._saved = _Saved(manifest, partial(tensors_of, manifest, read=read), others)

    def load_weights(self, manifest: Manifest, read: Read) -> list[str]:
        """Remember a checkpoint of another trial as the source of initial weights (a warm start); return [].

        Each part that it holds, such as `model`, is restored when the part is registered. The list would name weights
        that the checkpoint lacks, which is not known yet.
        """
        self.load(manifest, read)
        return []

    def _logical(self, modules: dict[str, nn.Module]) -> LogicalRanks:
        own = range(self._ranks.rank, self._ranks.rank + 1)
        return LogicalRanks(nn.Module(), own, self._ranks.size, modules)


def _buffers(rank: int) -> str:
    return f"buffers-{rank}"
