"""Time the torch calls of any training loop, Daylight's or a user's: backward, optimizer steps, DataLoader."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from kernel_backend.model.times import PARTS
from kernel_backend.runner.timing.clock import CLOCK, StepClock

_OPTIMIZER = PARTS.index("optimizer")
MOST_OPERATIONS = 20_000  # largest number of operations that are counted in a graph
COUNTED_AT = 3  # number of the backward pass whose graph is counted; the first ones may differ


def install(clock: StepClock = CLOCK) -> Callable[[], None]:
    """Patch torch so that `clock` times backward passes, optimizer steps and DataLoaders of this process.

    Return a function that removes the patches.
    """
    backward, fetch = torch.autograd.backward, _BaseDataLoaderIter.__next__
    torch.autograd.backward = _timed_backward(backward, clock)
    _BaseDataLoaderIter.__next__ = _timed_fetch(fetch, clock)  # type: ignore[method-assign, assignment]
    hooks = (
        register_optimizer_step_pre_hook(lambda *_: clock.enter(_OPTIMIZER)),
        register_optimizer_step_post_hook(lambda *_: clock.leave()),
    )

    def undo() -> None:
        torch.autograd.backward = backward
        _BaseDataLoaderIter.__next__ = fetch  # type: ignore[method-assign]
        for hook in hooks:
            hook.remove()

    return undo


def _timed_backward(backward: Callable[..., None], clock: StepClock) -> Callable[..., None]:
    passes, operations = 0, 0

    @functools.wraps(backward)
    def timed(tensors: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal passes, operations
        passes += 1
        if passes == COUNTED_AT:
            operations = count_operations(tensors)
        clock.computed(operations)
        with clock.part("backward"):
            backward(tensors, *args, **kwargs)

    return timed


def _timed_fetch(fetch: Callable[[Any], Any], clock: StepClock) -> Callable[[Any], Any]:
    @functools.wraps(fetch)
    def timed(loader: Any) -> Any:
        if not clock.outside:  # inside a block, the form of the definition has set the part already
            return fetch(loader)
        if not torch.is_grad_enabled():  # no gradients: a user's own validation
            clock.rest("validation")
            return fetch(loader)
        clock.used("own", loader._num_workers)
        clock.rest(clock.between)
        with clock.part("data"):
            return fetch(loader)

    return timed


def count_operations(tensors: Any) -> int:
    """Return the number of operations in the autograd graph of a tensor or several, at most `MOST_OPERATIONS`.

    Examples
    --------
    >>> count_operations(torch.ones(2, requires_grad=True).exp().sum())
    3
    """
    given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    found = {each.grad_fn for each in given if each.grad_fn is not None}
    waiting = list(found)
    while waiting and len(found) < MOST_OPERATIONS:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in found:
                found.add(node)
                waiting.append(node)
    return len(found)
