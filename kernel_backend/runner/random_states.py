"""The random states of a rank, for trainings that draw from streams (`--rng stream`) and not from derived seeds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, TypeVar

import torch

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

T = TypeVar("T")


class RandomStates:
    """The main generators of this process: python's, numpy's and torch's."""

    def state_dict(self) -> dict[str, Any]:
        """Where each of them stands."""
        states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
        if np is not None:
            states["numpy"] = tuple(
                each.tolist() if isinstance(each, np.ndarray) else each for each in np.random.get_state()
            )
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states["cuda"] = torch.cuda.get_rng_state()
        return states

    def load_state_dict(self, states: dict[str, Any]) -> None:
        """Go on from there."""
        random.setstate(states["python"])
        torch.set_rng_state(states["torch"])
        if np is not None and "numpy" in states:
            np.random.set_state(states["numpy"])
        if "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"])

    def apart(self, items: Iterator[T]) -> Iterator[T]:
        """The same items; what making them draws (samples have seeds of their own) leaves the streams alone."""
        while True:
            before = self.state_dict()
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self.load_state_dict(before)
            yield item
