"""Average gradients over the ranks in a user's or framework's loop, at the end of each backward pass.

Hooks on the parameters average them, as in DDP: code after `backward()`, such as clipping, sees the gradients of the
global batch. Each rank's gradients are multiplied by its fraction of the batch's samples, then summed. Sums are
reproducible, as the layout of the gradient buckets depends on the parameters alone. Averaging is idempotent, so
gradients may be accumulated over several passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.gradients.reducer import buckets, view_like
from kernel_backend.runner.ranks.backends import Handle, Ranks


class AveragedGradients:
    """Hooks on some parameters that average their gradients over the ranks in every backward pass."""

    def __init__(self, ranks: Ranks, name: str, parameters: Sequence[Tensor], weight: Callable[[], float]) -> None:
        """Register hooks on these parameters; from now on every backward pass averages their gradients over the ranks.

        `name` identifies these parameters in messages between ranks, and is unique within a training. `weight` returns
        this rank's fraction of the current global batch; the fractions of all ranks add up to 1. Every rank must call
        `backward` equally often.
        """
        self._ranks, self._name, self._weight = ranks, name, weight
        self._parameters = list(parameters)
        self._trained: list[bool] = []
        self._pass: _Pass | None = None
        for index, parameter in enumerate(self._parameters):
            # Frozen ones, too, as they may be trained later; only a parameter that requires gradients can be hooked.
            trained = parameter.requires_grad
            parameter.requires_grad_(True)
            parameter.register_post_accumulate_grad_hook(self._hook(index))  # type: ignore[no-untyped-call]
            parameter.requires_grad_(trained)

    def _hook(self, index: int) -> Callable[[Tensor], None]:
        def accumulated(parameter: Tensor) -> None:
            if self._pass is None:
                self._begin()
            assert self._pass is not None
            self._pass.take(self._place[index])

        return accumulated

    def _begin(self) -> None:
        trained = [each.requires_grad for each in self._parameters]
        if trained != self._trained:
            self._trained = trained
            indices = [index for index, each in enumerate(trained) if each]
            self._place = {index: place for place, index in enumerate(indices)}
            self._layout = _Layout(self._name, [self._parameters[index] for index in indices])
        self._pass = _Pass(self._ranks, self._layout, self._weight())
        engine = torch.autograd.Variable._execution_engine
        engine.queue_callback(self._finish)

    def _finish(self) -> None:
        done, self._pass = self._pass, None
        assert done is not None
        done.finish()


class _Bucket:
    """Flat tensor that holds the gradients of several parameters, to be sent to the other ranks in one message.

    The last bucket also holds a flag for each parameter, which is not zero if any rank has a gradient of it.
    """

    def __init__(self, name: str, places: list[int], parameters: list[Tensor], flags: int) -> None:
        self.name, self.places = name, places
        dtype = torch.promote_types(parameters[0].dtype, torch.float32)  # sums in 16 bits are inexact
        sizes = [each.numel() for each in parameters]
        self.flat = torch.zeros(sum(sizes) + flags, dtype=dtype, device=parameters[0].device)
        *pieces, self.flags = torch.split(self.flat, [*sizes, flags])
        self.views = [view_like(each, piece) for each, piece in zip(parameters, pieces, strict=True)]


class _Layout:
    """Assignment of parameters to buckets (flat tensors that are sent in one message), in the order of sending."""

    def __init__(self, name: str, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        plan = buckets([(each.dtype, each.nbytes) for each in parameters])
        self.buckets = [
            _Bucket(
                f"{name}.{number}",
                places,
                [parameters[place] for place in places],
                len(parameters) if number == len(plan) - 1 else 0,
            )
            for number, places in enumerate(plan)
        ]
        self.owner = {place: bucket for bucket in self.buckets for place in bucket.places}
        self.views = {
            place: view for bucket in self.buckets for place, view in zip(bucket.places, bucket.views, strict=True)
        }


class _Pass:
    """One backward pass, whose gradients are averaged over the ranks."""

    def __init__(self, ranks: Ranks, layout: _Layout, weight: float) -> None:
        self._ranks, self._layout, self._weight = ranks, layout, weight
        self._missing = [len(bucket.places) for bucket in layout.buckets]
        self._number = {id(bucket): number for number, bucket in enumerate(layout.buckets)}
        self._taken: set[int] = set()
        self._sent: list[Handle] = []

    def take(self, place: int) -> None:
        """Copy the gradient of parameter number `place` into its bucket, and send the buckets that are full.

        Buckets are sent in a fixed order, so a full one may have to wait for those before it.
        """
        if place in self._taken:
            raise InvalidDefinition(
                "a parameter got two gradients in one backward pass, and the first is on its way to the other ranks: "
                "with activation checkpointing, write use_reentrant=False"
            )
        self._taken.add(place)
        self._fill(place)
        self._missing[self._number[id(self._layout.owner[place])]] -= 1
        while len(self._sent) < len(self._missing) and self._missing[len(self._sent)] == 0:
            self._send()

    def finish(self) -> None:
        """Send the remaining buckets, and wait until every gradient is the average over the ranks."""
        for place in range(len(self._layout.parameters)):
            if place not in self._taken:
                self._fill(place)
        while len(self._sent) < len(self._missing):
            self._send()
        for handle in self._sent:
            handle.wait()
        anywhere = self._layout.buckets[-1].flags.tolist()
        for place, parameter in enumerate(self._layout.parameters):
            if anywhere[place]:
                self._put(parameter, self._layout.views[place])

    def _fill(self, place: int) -> None:
        gradient, view = self._layout.parameters[place].grad, self._layout.views[place]
        if gradient is None:  # this pass does not use the parameter
            view.zero_()
            return
        if gradient.is_sparse:
            raise InvalidDefinition("a sparse gradient cannot be averaged over slots: write sparse=False")
        with torch.no_grad():
            torch.mul(gradient.to(view.dtype), self._weight, out=view)

    def _send(self) -> None:
        bucket = self._layout.buckets[len(self._sent)]
        if bucket is self._layout.buckets[-1]:
            # Built on the host, and copied in one transfer.
            has = [float(each.grad is not None) for each in self._layout.parameters]
            bucket.flags.copy_(torch.tensor(has, dtype=bucket.flags.dtype))
        self._sent.append(self._ranks.allreduce_async(bucket.flat, bucket.name))

    def _put(self, parameter: Tensor, average: Tensor) -> None:
        """Copy the averaged gradient into the tensor `parameter.grad`, which the user's code may hold."""
        with torch.no_grad():
            if parameter.grad is None:
                parameter.grad = average.to(parameter.dtype, copy=True)
            else:
                parameter.grad.copy_(average)
