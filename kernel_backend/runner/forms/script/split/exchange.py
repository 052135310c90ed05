"""Transfer tensors between the ranks within a split call, and their gradients in its backward pass.

A tensor is either *replicated* (equal on every rank, with the whole gradient on every rank) or *partial* (each rank has
its own rows, or its own term of a sum). Four functions convert between the two. The backward pass of each is another
one of them, so that higher-order gradients are correct, too:

    enter    replicated -> own rows             backward: gather the rows of all ranks
    leave    own rows or terms -> replicated    backward: own rows, or the whole gradient of a term
    share    replicated -> used by all ranks    backward: sum over the ranks
    total    terms -> replicated sum            backward: the whole gradient
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from kernel_backend.runner.forms.script.split.rows import Kind, Part, shares
from kernel_backend.runner.gradients.reducer import buckets
from kernel_backend.runner.ranks.backends import Handle, Ranks

_ALIGNED = 16  # bytes: alignment that suits every dtype
Gradients = Sequence[Tensor | None]


class Exchange:
    """Sums and gathers over the ranks, with the total time that they have taken."""

    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        """Set up the exchange. Tensors are sent between the ranks on `device`."""
        self.rank, self.size = ranks.rank, ranks.size
        self._ranks, self._device = ranks, device
        self.seconds = 0.0
        self.on_backward: Callable[[bool], None] = lambda begins: None  # of a split call, or of a part of it

    def own(self, rows: int) -> tuple[int, int]:
        """Return the index of this rank's first row, and the number of its rows, in a batch of `rows` rows."""
        return shares(rows, self.size)[self.rank]

    def agree(self, value: Any) -> list[Any]:
        """Return, in rank order, the `value` that each rank has passed to this call."""
        return self._ranks.all_gather_object(value)

    def summed(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums of the tensors over all ranks, as new tensors; 16-bit types are summed in float32."""
        begun = time.perf_counter()
        wide = [torch.promote_types(each.dtype, torch.float32) for each in tensors]
        plan = buckets([(dtype, each.numel() * dtype.itemsize) for each, dtype in zip(tensors, wide, strict=True)])
        sent: list[tuple[list[int], Tensor, Handle]] = []
        for number, indices in enumerate(plan):
            dtype = wide[indices[0]]
            flat = torch.cat([tensors[index].detach().reshape(-1).to(dtype) for index in indices]).to(self._device)
            sent.append((indices, flat, self._ranks.allreduce_async(flat, f"split.sum.{number}")))
        found: list[Tensor | None] = [None] * len(tensors)
        for indices, flat, handle in sent:
            handle.wait()
            for index, piece in zip(indices, torch.split(flat, [tensors[i].numel() for i in indices]), strict=True):
                found[index] = piece.view(tensors[index].shape).to(tensors[index])
        self.seconds += time.perf_counter() - begun
        return [each for each in found if each is not None]

    def gathered(self, tensors: Sequence[Tensor], parts: Sequence[Part], rows: int) -> list[Tensor]:
        """Combine the ranks' tensors as `parts` says; return new tensors, which are equal on all ranks.

        A tensor's rows are concatenated, or its terms added up or averaged. `rows` is the number of rows on all ranks
        together.
        """
        begun = time.perf_counter()
        all_shares = shares(rows, self.size)
        most = all_shares[0][1]
        padded = [_padded(each.detach(), part.dim, most) for each, part in zip(tensors, parts, strict=True)]
        everyone = self._all_gathered(padded)
        counts = [count for _, count in all_shares]
        found = [
            _joined([each[index] for each in everyone], counts, part).to(tensors[index].device)
            for index, part in enumerate(parts)
        ]
        self.seconds += time.perf_counter() - begun
        return found

    def _all_gathered(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """Return each rank's tensors, in rank order, sent as one message of bytes; shapes are equal on all ranks."""
        sizes = [-(-each.nbytes // _ALIGNED) * _ALIGNED for each in tensors]
        flat = torch.zeros(sum(sizes), dtype=torch.uint8, device=self._device)
        for each, place in zip(tensors, torch.split(flat, sizes), strict=True):
            place[: each.nbytes].copy_(each.reshape(-1).view(torch.uint8))
        joined = self._ranks.all_gather(flat, "split").view(self.size, -1)
        return [
            [
                place[: each.nbytes].view(each.dtype).view(each.shape)
                for each, place in zip(tensors, torch.split(of_rank, sizes), strict=True)
            ]
            for of_rank in joined
        ]


def _padded(tensor: Tensor, dim: int | None, most: int) -> Tensor:
    """Return the tensor with dimension `dim` moved to the front, and padded with zeros there to the size `most`."""
    if dim is None:
        return tensor.contiguous()
    rows = tensor.movedim(dim, 0)
    if len(rows) < most:
        rows = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])])
    return rows.contiguous()


def _joined(of_ranks: Sequence[Tensor], counts: Sequence[int], part: Part) -> Tensor:
    """Combine one tensor of each rank as `part` says: concatenate its rows, or add up or average its terms.

    `counts` has the number of each rank's rows.
    """
    if part.kind is Kind.ROWS:
        assert part.dim is not None
        joined = torch.cat([each[:count] for each, count in zip(of_ranks, counts, strict=True)])
        return joined.movedim(0, part.dim).contiguous() if part.dim else joined
    if part.kind is Kind.SAME:
        return of_ranks[0].clone()
    total = torch.zeros_like(of_ranks[0])
    for each, count in zip(of_ranks, counts, strict=True):
        total += each * (count / sum(counts)) if part.kind is Kind.MEAN else each
    return total


class _Like(NamedTuple):
    """Shape, dtype and device of a tensor, for zeros in place of its gradient on a rank that has none."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def zeros(self) -> Tensor:
        return torch.zeros(self.shape, dtype=self.dtype, device=self.device)


class _Enter(Function):
    """Autograd function that takes this rank's rows of tensors that are equal on all ranks.

    Its last output is an anchor: a scalar that is passed to `_Leave`, so that this function's backward pass runs on
    every rank.
    """

    @staticmethod
    def forward(ctx: Any, exchange: Exchange, parts: Sequence[Part], rows: int, *tensors: Tensor) -> Any:
        ctx.exchange, ctx.parts, ctx.rows = exchange, parts, rows
        return *(own_rows(exchange, each, part, rows) for each, part in zip(tensors, parts, strict=True)), _anchor(
            tensors
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        found = leave(ctx.exchange, ctx.parts, ctx.rows, gradients[:-1], ())
        ctx.exchange.on_backward(False)
        return None, None, None, *found


class _Leave(Function):
    """Autograd function that gathers rows or terms from all ranks into tensors that are equal on all ranks.

    It also takes anchors (scalars from `_Enter` and `_Share`) and gives them gradients, so that every rank takes part
    in each transfer of the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, exchange: Exchange, parts: Sequence[Part], rows: int, anchors: int, *tensors: Tensor) -> Any:
        own = tensors[anchors:]
        ctx.exchange, ctx.parts, ctx.rows, ctx.anchors = (
            exchange,
            parts,
            rows,
            [_like(each) for each in tensors[:anchors]],
        )
        ctx.set_materialize_grads(False)
        found = exchange.gathered(own, parts, rows)
        ctx.mark_non_differentiable(*(new for new, each in zip(found, own, strict=True) if not each.requires_grad))
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        exchange, rows = ctx.exchange, ctx.rows
        exchange.on_backward(True)
        own = [
            None if each is None else _own_gradient(exchange, each, part, rows)
            for each, part in zip(gradients, ctx.parts, strict=True)
        ]
        return None, None, None, None, *(each.zeros() for each in ctx.anchors), *own


class _Share(Function):
    """Autograd function that lets each rank use whole tensors that are equal on all ranks.

    Its last output is an anchor: a scalar that is passed to `_Leave`, so that this function's backward pass runs on
    every rank.
    """

    @staticmethod
    def forward(ctx: Any, exchange: Exchange, *tensors: Tensor) -> Any:
        ctx.exchange, ctx.likes = exchange, [_like(each) for each in tensors]
        ctx.set_materialize_grads(False)
        return *(each.view_as(each) for each in tensors), _anchor(tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        sums = _Total.apply(ctx.exchange, ctx.likes, *gradients[:-1])  # type: ignore[no-untyped-call]
        ctx.exchange.on_backward(False)
        return None, *sums


class _Total(Function):
    """Autograd function that sums tensors over the ranks; the result is None for tensors that no rank has."""

    @staticmethod
    def forward(ctx: Any, exchange: Exchange, likes: Sequence[_Like], *tensors: Tensor | None) -> Any:
        ctx.exchange = exchange
        ctx.set_materialize_grads(False)
        present = torch.tensor([each is not None for each in tensors], dtype=torch.float32, device=likes[0].device)
        *sums, counts = exchange.summed(
            [like.zeros() if each is None else each for each, like in zip(tensors, likes, strict=True)] + [present]
        )
        if all(each is not None for each in tensors):  # otherwise checking would wait for a GPU
            return tuple(sums)
        return tuple(each if count else None for each, count in zip(sums, counts.tolist(), strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        shared = iter(share(ctx.exchange, [each for each in gradients if each is not None])[0])
        return None, None, *(None if each is None else next(shared) for each in gradients)


def enter(
    exchange: Exchange, parts: Sequence[Part], rows: int, tensors: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Take this rank's rows of each of a call's input tensors; return these rows, and anchors to pass to `leave`.

    On entry, every rank has the same tensors, with all `rows` rows of the batch; `parts` has, for each tensor, the
    dimension of its rows. Anchors are scalars that make autograd run the backward pass on every rank; [] if no gradient
    is needed.
    """
    if not (torch.is_grad_enabled() and any(each.requires_grad for each in tensors)):
        return [own_rows(exchange, each, part, rows) for each, part in zip(tensors, parts, strict=True)], []
    *own, anchor = _Enter.apply(exchange, parts, rows, *tensors)  # type: ignore[no-untyped-call]
    return own, [anchor]


def leave(
    exchange: Exchange, parts: Sequence[Part], rows: int, tensors: Sequence[Tensor], anchors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Combine the ranks' outputs of a call into tensors that are equal on all ranks; return these. All ranks call it.

    `parts` says, for each output, whether the ranks' rows are concatenated, or their terms added up or averaged.
    `anchors` are those that `enter` and `share` have returned.
    """
    if not tensors:
        return ()
    found: tuple[Tensor, ...] = _Leave.apply(exchange, parts, rows, len(anchors), *anchors, *tensors)  # type: ignore[no-untyped-call]
    return found


def share(exchange: Exchange, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return tensors for use as a whole in this rank's part of a call, and anchors (see `enter`) to pass to `leave`.

    The tensors are equal on all ranks. In the backward pass, their gradients are summed over the ranks.
    """
    if not tensors:
        return [], []
    *shared, anchor = _Share.apply(exchange, *tensors)  # type: ignore[no-untyped-call]
    return shared, [anchor]


def is_boundary(node: Any) -> bool:
    """Return True if an autograd node is where a split call takes its inputs.

    The graph that has computed these inputs, before the call, is not split.
    """
    return isinstance(node, _Share._backward_cls | _Enter._backward_cls)


def own_rows(exchange: Exchange, tensor: Tensor, part: Part, rows: int) -> Tensor:
    """Return this rank's rows of a tensor that has all `rows` rows of the batch."""
    assert part.dim is not None
    return narrowed(tensor, part.dim, *exchange.own(rows))


def narrowed(tensor: Tensor, dim: int, begin: int, count: int) -> Tensor:
    """Return `count` rows of a tensor along dimension `dim`, from row `begin` on.

    The result is contiguous, unless the rows are the first dimension.
    """
    own = tensor.narrow(dim, begin, count)
    return own.contiguous() if dim else own


def _own_gradient(exchange: Exchange, gradient: Tensor, part: Part, rows: int) -> Tensor:
    if part.kind is Kind.ROWS:
        (own,), _ = enter(exchange, [part], rows, [gradient])
        return own
    (own,), _ = share(exchange, [gradient])
    return own * (exchange.own(rows)[1] / rows) if part.kind is Kind.MEAN else own


def _like(tensor: Tensor) -> _Like:
    return _Like(tensor.shape, tensor.dtype, tensor.device)


def _anchor(tensors: Sequence[Tensor]) -> Tensor:
    return torch.zeros((), device=tensors[0].device)
