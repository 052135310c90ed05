"""Gradients of all ranks, summed while they are still being computed, and the ranks' control word with them.

Neither DistributedOptimizer nor DDP keeps sums the same from run to run: from three ranks on the order in which a ring
sums an element depends on its place in a buffer, and both choose their buffers by timing. Here buckets are frozen
before the first step: flat tensors of which the gradients are views, sent as soon as they are full, latest parameters
first, each only after those before it. Every rank weights its loss by its own number of samples; after the sum there
is one scale, by the number of samples that all ranks had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.ranks import Handle, Ranks

# Few large buckets: each sum costs Horovod a negotiation of 1 to 2 ms, and on a CPU there is little to overlap with.
BUCKET_BYTES = 25 << 20


class Flags(NamedTuple):
    """What a rank asks of all: above zero on any rank means set for all."""

    release: bool = False  # commit a checkpoint and leave
    checkpoint: bool = False
    report: bool = False
    logged: bool = False  # this rank's loss gave values to log


class Word(NamedTuple):
    """What all ranks know of a step once its gradients are summed: the same on every rank."""

    samples: int  # of the global batch
    loss: Tensor | float  # their mean loss
    flags: Flags


_HEAD = 2 + len(Flags._fields)


class OwnGradients:
    """The gradients of a gang of one: the plain training step, bit for bit."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [each for each in model.parameters() if each.requires_grad]

    def backward(self, loss: Tensor | None, samples: int, flags: Flags) -> Word:
        """Compute the gradients of a step."""
        assert loss is not None
        for parameter in self._parameters:
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        return Word(samples, loss.detach(), flags)


class SummedGradients:
    """The gradients of a gang. Buckets and views exist from the start; parameters frozen then stay out."""

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        self._names = [name for name, _ in named]
        self._parameters = [each for _, each in named]
        self._ranks = ranks
        plan = buckets([(each.dtype, each.nbytes) for each in self._parameters])
        self._buckets = [self._bucket(indices, last=False) for indices in plan[:-1]]
        self._buckets += [self._bucket(indices, last=True) for indices in plan[-1:]]
        if not self._buckets or self._buckets[-1].flat.dtype != torch.float32:
            self._buckets.append(self._bucket([], last=True))
        self._word = self._buckets[-1].flat[-self._word_size :]
        self._views = self._take_views()
        self._touched = [False] * len(named)
        self._unused: list[int] = []  # parameters that had no gradient in the last step
        self._sent: list[Handle] = []
        for bucket in self._buckets:
            for index in bucket.indices:
                hook = self._hook(index, bucket)
                self._parameters[index].register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def backward(self, loss: Tensor | None, samples: int, flags: Flags) -> Word:
        """Compute and sum the gradients of a step: afterwards every rank has those of the global batch.

        `loss` is the mean over so many `samples`, None for an empty share. A parameter that no rank used has no
        gradient, as in a plain loop. Raises the backend's error where a peer is gone.
        """
        self._open()
        weighted = None if loss is None else loss * samples
        self._write_word(weighted, samples, flags)
        if weighted is not None:
            weighted.backward()  # type: ignore[no-untyped-call]
        return self._close()

    @property
    def _word_size(self) -> int:
        return _HEAD + len(self._parameters)

    def _bucket(self, indices: list[int], last: bool) -> _Bucket:
        parameters = [self._parameters[index] for index in indices]
        dtype = parameters[0].dtype if parameters else torch.float32
        device = self._parameters[0].device if self._parameters else torch.device("cpu")
        elements = sum(each.numel() for each in parameters)
        extra = self._word_size if last and dtype == torch.float32 else 0
        return _Bucket(indices, torch.zeros(elements + extra, dtype=dtype, device=device), elements)

    def _take_views(self) -> list[Tensor]:
        views: dict[int, Tensor] = {}
        for bucket in self._buckets:
            start = 0
            for index in bucket.indices:
                parameter = self._parameters[index]
                views[index] = bucket.flat[start : start + parameter.numel()].view(parameter.shape)
                parameter.grad = views[index]
                start += parameter.numel()
        return [views[index] for index in range(len(views))]

    def _hook(self, index: int, bucket: _Bucket) -> Callable[[Tensor], None]:
        def ready(parameter: Tensor) -> None:
            if self._touched[index]:
                raise InvalidDefinition(
                    f"parameter {self._names[index]} got two gradients in one backward pass, and the first is on its "
                    "way to the other ranks: with activation checkpointing, write use_reentrant=False"
                )
            self._touched[index] = True
            bucket.missing -= 1
            if bucket.missing == 0:
                self._send_full()

        return ready

    def _open(self) -> None:
        for index in self._unused:
            self._parameters[index].grad = self._views[index]
        self._sent = []
        self._touched = [False] * len(self._touched)
        for bucket in self._buckets:
            bucket.missing = len(bucket.indices)
            bucket.flat.zero_()

    def _write_word(self, weighted: Tensor | None, samples: int, flags: Flags) -> None:
        ones = [1.0] * len(self._parameters)
        self._word.copy_(torch.tensor([float(samples), 0.0, *map(float, flags), *ones]))
        if weighted is not None:
            self._word[1] = weighted.detach()

    def _send_full(self) -> None:
        """Send every full bucket whose predecessors are on their way; the last one waits for the word."""
        while len(self._sent) < len(self._buckets) and self._buckets[len(self._sent)].missing == 0:
            self._send()

    def _send(self) -> None:
        number = len(self._sent)
        self._sent.append(self._ranks.allreduce_async(self._buckets[number].flat, f"gradients.{number}"))

    def _close(self) -> Word:
        if len(self._sent) < len(self._buckets):
            if not all(self._touched):
                self._word[_HEAD:] = torch.tensor(self._touched, dtype=torch.float32)
            while len(self._sent) < len(self._buckets):
                self._send()
        for handle in self._sent:
            handle.wait()
        samples, loss, *rest = self._word.tolist()
        flags, touched = rest[: len(Flags._fields)], rest[len(Flags._fields) :]
        self._scale(1.0 / samples)
        self._unused = [index for index, ranks in enumerate(touched) if ranks == 0.0]
        for index in self._unused:
            self._parameters[index].grad = None
        return Word(int(samples), loss / samples, Flags(*(flag > 0 for flag in flags)))

    def _scale(self, factor: float) -> None:
        for bucket in self._buckets:
            if bucket.indices:
                bucket.flat[: bucket.elements].mul_(factor)


class _Bucket:
    def __init__(self, indices: list[int], flat: Tensor, elements: int) -> None:
        self.indices, self.flat, self.elements = indices, flat, elements
        self.missing = len(indices)


def reducer(model: nn.Module, ranks: Ranks) -> OwnGradients | SummedGradients:
    """Who computes the gradients of a step for this gang."""
    return OwnGradients(model) if ranks.size == 1 else SummedGradients(model, ranks)


def buckets(parameters: Sequence[tuple[torch.dtype, int]], limit: int = BUCKET_BYTES) -> list[list[int]]:
    """Indices of parameters (dtype, bytes) in buckets of one dtype each, in the order in which they are sent.

    Latest parameters come first, for their gradients do; a bucket is full at `limit` bytes.
    """
    full: list[list[int]] = []
    filling: dict[torch.dtype, list[int]] = {}
    sizes: dict[torch.dtype, int] = {}
    for index in reversed(range(len(parameters))):
        dtype, size = parameters[index]
        filling.setdefault(dtype, []).append(index)
        sizes[dtype] = sizes.get(dtype, 0) + size
        if sizes[dtype] >= limit:
            full.append(filling.pop(dtype))
            sizes[dtype] = 0
    return sorted([*full, *filling.values()], key=lambda bucket: -bucket[-1])
