"""Notify listeners when a user's script calls `backward`, prints, or ends a step or an iteration of a training loop.

After a restart, the script runs again from its top. Until it has reached the point at which its checkpoint was saved,
listeners are not notified.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.runner.forms.script.watchers import Watchers


class Events:
    """Lists of functions to call when the user's script calls `backward`, prints, or ends a step or an iteration.

    Such a listener must not disturb the training: it may not change the script's variables or draw random numbers.
    """

    def __init__(self, watchers: Watchers | None = None) -> None:
        """Patch `torch.autograd.backward`, and register a hook on optimizer steps; `watchers` calls the listeners."""
        self.watchers = watchers or Watchers()
        self.on_backward: list[Callable[[Any], None]] = []  # called with the tensor, before its backward pass
        self.on_step: list[Callable[[int], None]] = []  # called with the number of steps taken, when one ends
        self.on_iteration: list[Callable[[TrainingLoop, FrameType], None]] = []  # at the end of an iteration
        self.on_output: list[Callable[[str], None]] = []
        self.backwards = 0  # since the last step
        self.updates = 0
        self.renewed = False  # since the last step, an optimizer has taken its first step
        self.muted = False
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._backward = torch.autograd.backward
        torch.autograd.backward = self._hear_backward
        self._handle = register_optimizer_step_post_hook(self._hear_update)

    def close(self) -> None:
        """Restore torch's `backward`, and remove the hook on optimizer steps."""
        torch.autograd.backward = self._backward
        self._handle.remove()

    def iteration(self, loop: TrainingLoop, frame: FrameType) -> None:
        """Notify listeners that an iteration of a training loop has ended."""
        for each in self.on_iteration:
            self.watchers.call(each, loop, frame)

    def step(self, step: int) -> None:
        """Notify listeners that a step was completed."""
        self.backwards = self.updates = 0
        self.renewed = False
        for each in self.on_step:
            self.watchers.call(each, step)

    def resume(self) -> None:
        """Notify listeners from now on: the restarted program is at the point at which its checkpoint was saved."""
        self.muted = False
        self.backwards = self.updates = 0

    def output(self, text: str) -> None:
        """Notify listeners of text that the program prints."""
        if not self.muted:
            for each in self.on_output:
                self.watchers.call(each, text)

    def _hear_backward(self, tensors: Any, *args: Any, **options: Any) -> None:
        if not self.muted:
            self.backwards += 1
            for each in self.on_backward:
                self.watchers.call(each, tensors)
        self._backward(tensors, *args, **options)

    def _hear_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.updates += not self.muted
        self.renewed = self.renewed or optimizer not in self._optimizers
        self._optimizers.add(optimizer)
