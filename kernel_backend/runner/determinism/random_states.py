"""Save and restore the random states of a rank, used with `--rng stream` in place of derived seeds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch

from kernel_backend.runner.determinism import seeds

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

T = TypeVar("T")
_END = object()


class RandomStates:
    """States of the global random generators of this process: Python's, numpy's and torch's."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each generator by name, for a checkpoint."""
        states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
        if np is not None:
            states["numpy"] = tuple(
                each.tolist() if isinstance(each, np.ndarray) else each for each in np.random.get_state()
            )
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states["cuda"] = torch.cuda.get_rng_state()
        return states

    def load_state_dict(self, states: dict[str, Any]) -> None:
        """Restore the states that `state_dict` returned."""
        random.setstate(states["python"])
        torch.set_rng_state(states["torch"])
        if np is not None and "numpy" in states:
            np.random.set_state(states["numpy"])
        if "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"])

    def begin(self, seed: int, rank: int, step: int) -> None:
        """Give this rank's generators new states for `step`, as the checkpoint has no random states of this rank."""
        seeds.reseed(seeds.mix(seed, "stream", rank, step))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Restore the states of the generators at the end of the `with` block."""
        before = self.state_dict()
        try:
            yield
        finally:
            self.load_state_dict(before)

    def isolated(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the items of an iterator without letting its random draws change this process's generators."""
        while True:
            with self.aside():
                item = next(items, _END)
            if item is _END:
                return
            yield cast("T", item)


class Reseeded:
    """Random states of a form that seeds all generators anew for each piece of work: there are none to be saved."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing."""

    def begin(self, seed: int, rank: int, step: int) -> None:
        """Do nothing, as each piece of work begins with a seed of its own."""
