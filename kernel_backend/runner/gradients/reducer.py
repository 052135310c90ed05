"""Sum gradients over all ranks during the backward pass, with a control word: sample count, loss and flags.

For each step call `begin`, `add` for each share of the batch that this rank computes, and `finish`.

Neither DistributedOptimizer nor DDP computes sums that are equal from run to run. From three ranks on, the order in
which a ring adds up an element depends on its position in a buffer, and both assign gradients to buffers by timing.
Here buckets are laid out before the first step: flat tensors of which the gradients are views. Each is sent as soon as
it is full and its predecessors were sent, latest parameters first. The loss of a share is weighted by its fraction of
the global batch's samples before its gradients are computed, so that no gradient or sum is larger than on one process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.ranks.backends import Handle, Ranks

# Few large buckets, as each sum costs Horovod a negotiation of 1 to 2 ms, and a CPU has little to overlap with.
BUCKET_BYTES = 25 << 20


Parameters = Mapping[str, nn.Parameter]  # by their names in the model


class ControlFlags(NamedTuple):
    """Requests of one rank to all ranks, which are sent with the gradients; a flag is set if any rank has set it."""

    release: bool = False  # commit a checkpoint and leave
    checkpoint: bool = False
    report: bool = False
    logged: bool = False  # this rank's loss function returned values to log


class ControlWord(NamedTuple):
    """Sample count, mean loss and flags of a step, over all ranks."""

    samples: int  # of the global batch
    loss: Tensor | float  # their mean loss
    flags: ControlFlags


_HEAD = 2 + len(ControlFlags._fields)


class Gradients(Protocol):
    """Gradients of the parameters for one step at a time, summed over the ranks."""

    def begin(self) -> None:
        """Begin a step and discard the previous gradients."""

    def add(self, loss: Tensor | None, samples: int, total: int, flags: ControlFlags) -> None:
        """Compute the gradients of one share (part) of the batch; `loss` is the mean over its `samples`.

        `loss` is None and `samples` is 0 for an empty share, and for a share that trains nothing in this step. The
        global batch has `total` samples. `flags` are this rank's requests.
        """

    def finish(self) -> ControlWord:
        """Wait until this rank has the gradients of the global batch; return sample count, mean loss and flags.

        A parameter that no rank used gets the gradient None, as in a training on one process. Raises the backend's
        error if a rank is lost, and InvalidDefinition if a parameter that was frozen when the training began has a
        gradient.
        """


class OwnGradients:
    """Reducer for a single rank: with no other ranks to sum over, each step has the bits of a plain training loop."""

    def __init__(self, parameters: Parameters, scaler: GradScaler) -> None:
        self._parameters = list(parameters.values())  # including frozen ones, which may be trained later
        self._scaler = scaler
        self._word = ControlWord(0, 0.0, ControlFlags())

    def begin(self) -> None:
        """Discard the previous step's gradients."""
        self._word = ControlWord(0, 0.0, ControlFlags())
        for parameter in self._parameters:
            parameter.grad = None

    def add(self, loss: Tensor | None, samples: int, total: int, flags: ControlFlags) -> None:
        """Add the gradients of a share: the whole batch or, with `--accumulate`, a part of it.

        `loss` is the mean over the share's `samples`; the batch has `total` samples. `flags` are ignored, as there is
        no other rank.
        """
        count, mean, _ = self._word
        if loss is not None:
            weighted = loss if samples == total else loss * (samples / total)
            self._scaler.scale(weighted).backward()  # type: ignore[no-untyped-call]
            mean = mean + weighted.detach()
        self._word = ControlWord(count + samples, mean, flags)

    def finish(self) -> ControlWord:
        """Return the sample count and the mean loss of the step, without flags; with one rank nothing is summed."""
        return self._word


class Buckets:
    """Gradients that are views of preallocated flat tensors, the buckets, each of which is sent as one message.

    The last bucket ends with the control word: the step's sample count, loss and flags. Parameters without
    `requires_grad` at the start are in no bucket, and must not be trained later.
    """

    def __init__(self, parameters: Parameters, scaler: GradScaler, multiple: int = 1) -> None:
        """Lay out the buckets for `parameters`, each padded to a multiple of `multiple` elements."""
        named = [(name, each) for name, each in parameters.items() if each.requires_grad]
        self._names = [name for name, _ in named]
        self._parameters = [each for _, each in named]
        self._frozen = [(name, each) for name, each in parameters.items() if not each.requires_grad]
        for _, parameter in self._frozen:
            parameter.grad = None  # left over from an earlier training
        self._scaler, self._multiple = scaler, multiple
        plan = buckets([(each.dtype, each.nbytes) for each in self._parameters])
        self._buckets = [self._bucket(indices, last=False) for indices in plan[:-1]]
        self._buckets += [self._bucket(indices, last=True) for indices in plan[-1:]]
        if not self._buckets or self._buckets[-1].flat.dtype != torch.float32:
            self._buckets.append(self._bucket([], last=True))
        word = self._buckets[-1]
        self._word = word.flat[word.elements : word.elements + self._word_size]
        self._views = self._take_views()
        self._touched = [False] * len(named)  # the parameter has a gradient from a share of this step
        self._ended = [False] * len(named)  # the parameter has its gradient from the current share
        self._active = False  # False while another objective of the step may compute gradients of the same parameters
        for bucket in self._buckets:
            for index in bucket.indices:
                hook = self._hook(index, bucket)
                self._parameters[index].register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def _compute(self, loss: Tensor | None, samples: int, total: int, flags: ControlFlags) -> None:
        """Compute a share's gradients, and add its sample count and its weighted loss to the control word.

        The loss is weighted by the share's fraction (`samples` / `total`) of the batch, so that the sum is the batch's
        mean loss. `flags` are this rank's requests.
        """
        # In place, as copying a tensor from the host would wait for a GPU.
        self._word[0] += samples
        for index, flag in enumerate(flags, start=2):
            if flag:
                self._word[index].fill_(1.0)
        self._word[_HEAD:].fill_(1.0)
        if loss is not None:
            weighted = loss * (samples / total)
            self._word[1] += weighted.detach()
            self._scaler.scale(weighted).backward()  # type: ignore[no-untyped-call]

    def _ready(self, bucket: _Bucket) -> None:
        """Process a bucket once the backward pass has computed all of its gradients; called for each bucket.

        This class does nothing; a subclass may send the bucket.
        """

    @property
    def _word_size(self) -> int:
        return _HEAD + len(self._parameters)

    def _bucket(self, indices: list[int], last: bool) -> _Bucket:
        parameters = [self._parameters[index] for index in indices]
        dtype = parameters[0].dtype if parameters else torch.float32
        device = self._parameters[0].device if self._parameters else torch.device("cpu")
        elements = sum(each.numel() for each in parameters)
        extra = self._word_size if last and dtype == torch.float32 else 0
        length = -(-(elements + extra) // self._multiple) * self._multiple
        return _Bucket(indices, torch.zeros(length, dtype=dtype, device=device), elements)

    def _take_views(self) -> list[Tensor]:
        views: dict[int, Tensor] = {}
        for bucket in self._buckets:
            start = 0
            for index in bucket.indices:
                parameter = self._parameters[index]
                views[index] = view_like(parameter, bucket.flat[start : start + parameter.numel()])
                parameter.grad = views[index]
                start += parameter.numel()
        return [views[index] for index in range(len(views))]

    def _hook(self, index: int, bucket: _Bucket) -> Callable[[Tensor], None]:
        def ready(parameter: Tensor) -> None:
            if not self._active:
                return
            if self._ended[index]:
                raise InvalidDefinition(
                    f"parameter {self._names[index]} got two gradients in one backward pass, and the first is on its "
                    "way to the other ranks: with activation checkpointing, write use_reentrant=False"
                )
            self._touched[index] = self._ended[index] = True
            bucket.missing -= 1
            if bucket.missing == 0:
                self._ready(bucket)

        return ready

    def _open(self) -> None:
        """Zero all gradients and make them views of the buckets again, if they were replaced or set to None."""
        self._active = True
        for parameter, view in zip(self._parameters, self._views, strict=True):
            if parameter.grad is not view:  # no rank used it in the last step, or the optimizer replaced it
                parameter.grad = view
        self._touched = [False] * len(self._touched)
        self._begin_share()
        for bucket in self._buckets:
            bucket.flat.zero_()

    def _begin_share(self) -> None:
        """Mark all gradients of every bucket as not yet computed, at the start of a share of the batch."""
        self._ended = [False] * len(self._ended)
        for bucket in self._buckets:
            bucket.missing = len(bucket.indices)

    def _mark_touched(self) -> None:
        """Mark in the control word which parameters this rank has not used in this step.

        The flags are summed over the ranks with the last bucket, so this must be called before that bucket is sent.
        """
        start = _HEAD
        for touched, run in itertools.groupby(self._touched):
            stop = start + len(list(run))
            if not touched:
                self._word[start:stop].fill_(0.0)
            start = stop

    def _refuse_thawed(self) -> None:
        for name, parameter in self._frozen:
            if parameter.grad is not None:
                raise InvalidDefinition(
                    f"parameter {name} was frozen when the training began and is trained now, but the ranks sum the "
                    "gradients of those parameters alone that were trainable then: let it require gradients from the "
                    "start, and freeze it in the model's `forward` until it is to be trained"
                )

    def _read_word(self) -> ControlWord:
        """Return sample count, loss and flags, summed over all ranks, from the control word.

        Gradients of parameters that no rank used are set to None.
        """
        # The only wait for a GPU in a step: a missing gradient changes what the optimizer does.
        samples, loss, *rest = self._word.tolist()
        self._active = False
        flags, touched = rest[: len(ControlFlags._fields)], rest[len(ControlFlags._fields) :]
        for parameter, ranks in zip(self._parameters, touched, strict=True):
            if ranks == 0.0:
                parameter.grad = None
        return ControlWord(int(samples), loss, ControlFlags(*(flag > 0 for flag in flags)))


class SummedGradients(Buckets):
    """Gradients that the backend sums over the ranks, while the backward pass still computes other gradients."""

    def __init__(
        self, parameters: Parameters, scaler: GradScaler, ranks: Ranks, name: str = "gradients", shares: int = 1
    ) -> None:
        """Set up the buckets; `name` is unique within a training, and each rank adds `shares` shares per step."""
        super().__init__(parameters, scaler)
        self._ranks, self._name, self._shares = ranks, name, shares
        self._sent: list[Handle] = []
        self._added = 0

    def begin(self) -> None:
        """Begin a step: set all gradients to zero."""
        self._open()
        self._sent, self._added = [], 0

    def add(self, loss: Tensor | None, samples: int, total: int, flags: ControlFlags) -> None:
        """Compute the gradients of one share; during the last share, send each bucket once it is complete."""
        self._begin_share()
        self._added += 1
        self._compute(loss, samples, total, flags)

    def finish(self) -> ControlWord:
        """Send the remaining buckets, wait for the sums, and return sample count, loss and flags over all ranks."""
        self._refuse_thawed()
        if len(self._sent) < len(self._buckets):
            self._mark_touched()
            while len(self._sent) < len(self._buckets):
                self._send()
        for bucket, handle in zip(self._buckets, self._sent, strict=True):
            handle.wait()
            bucket.take(bucket.wide)
        return self._read_word()

    def _ready(self, bucket: _Bucket) -> None:
        """Send the complete buckets, in their order, once this rank's last share is in its backward pass."""
        if self._added < self._shares:
            return
        while len(self._sent) < len(self._buckets) and self._buckets[len(self._sent)].missing == 0:
            self._send()

    def _send(self) -> None:
        number = len(self._sent)
        self._sent.append(self._ranks.allreduce_async(self._buckets[number].widen(), f"{self._name}.{number}"))


class _Bucket:
    """Bucket with gradients of one dtype in the tensor `flat`, which are summed over the ranks in the tensor `wide`.

    `wide` is `flat` itself or, for 16-bit types, a float32 copy. Sums in 16 bits are inexact, each backend rounds them
    differently, and Horovod over Gloo does not support bfloat16.
    """

    def __init__(self, indices: list[int], flat: Tensor, elements: int) -> None:
        self.indices, self.flat, self.elements = indices, flat, elements
        self.missing = len(indices)
        dtype = torch.promote_types(flat.dtype, torch.float32)
        self.wide = flat if dtype == flat.dtype else torch.empty_like(flat, dtype=dtype)

    def widen(self) -> Tensor:
        """Return the gradients as a tensor in the dtype in which they are summed; the next call overwrites it."""
        if self.wide is not self.flat:
            self.wide.copy_(self.flat)
        return self.wide

    def take(self, summed: Tensor) -> None:
        """Replace the bucket's gradients by `summed`, their sum over the ranks."""
        if summed is not self.flat:
            self.flat.copy_(summed)


def view_like(parameter: Tensor, flat: Tensor) -> Tensor:
    """Return a view of a flat tensor in the parameter's shape and memory order.

    A fused optimizer reads both tensors in memory order, whatever their strides: with another order it would apply
    gradients to the wrong weights of a `channels_last` model. A parameter with gaps or overlaps has a contiguous
    gradient, as in torch.
    """
    dense = torch.empty_like(parameter, device="meta").stride() == parameter.stride()
    return flat.as_strided(parameter.shape, parameter.stride()) if dense else flat.view(parameter.shape)


def buckets(parameters: Sequence[tuple[torch.dtype, int]], limit: int = BUCKET_BYTES) -> list[list[int]]:
    """Assign parameters, each given as (dtype, bytes), to buckets of one dtype; return their indices per bucket.

    Buckets and indices are in the order of sending: the latest parameters come first, as their gradients are computed
    first. A bucket is full at `limit` bytes.
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
