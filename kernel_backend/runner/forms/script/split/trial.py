"""Test how a call can be split: run it on the whole batch and on two parts of it, and compare the results."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kernel_backend.runner.determinism.python_state import as_it_was
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.forms.script.split import structure
from kernel_backend.runner.forms.script.split.draws import FixedDraws, Unsplittable
from kernel_backend.runner.forms.script.split.exchange import is_boundary, narrowed
from kernel_backend.runner.forms.script.split.rows import Dims, Kind, Part, Plan, candidates, rows_of, trial_parts

_PRECISION = {torch.float64: 1e-7, torch.float32: 1e-4, torch.complex64: 1e-4}
_COARSE = 2e-2  # for 16-bit types, under autocast, and for TF32 products on a GPU


class Undecided(Unsplittable):
    """Raised if the test run of a call does not show how it can be split, though that of a later call may."""


class Call(NamedTuple):
    """Call of a module's `forward`, with the arguments."""

    module: nn.Module
    forward: Callable[..., Any]
    args: tuple[Any, ...]
    named: dict[str, Any]


class _Result(NamedTuple):
    leaves: list[Any]
    kept: list[tuple[str, Tensor]]  # buffers and other tensors of the modules after the call
    python: Any  # states of Python's and numpy's generators after the call


Within = Callable[[], AbstractContextManager[Any]]


def find_plan(call: Call, ranks: int, within: Within) -> Plan:
    """Test how a call can be split over `ranks` ranks, and return how.

    The call is run on the whole batch and on two parts of it, each within a context that `within` returns. Raises
    Unsplittable, with the reason, if the call cannot be split.
    """
    arguments = (call.args, call.named)
    inputs = structure.tensors(arguments)
    shapes = [each.shape for each in inputs]
    problem = "none of its arguments has rows"
    whole = None
    for dims in candidates(shapes, ranks):
        first, second = trial_parts(rows_of(shapes, dims))
        try:
            whole = whole or _tried(call, inputs, within)
            parts = [
                _tried(call, _narrowed(inputs, dims, begin, count), within)
                for begin, count in ((0, first), (first, second))
            ]
            return Plan(dims, _outputs(whole, parts, (first, second)))
        except Undecided:
            raise
        except Unsplittable as reason:
            problem = str(reason)
        except Exception as error:  # the code was written for whole batches: an error with parts is not the user's
            problem = f"a part of a batch fails ({type(error).__name__}: {str(error).partition(chr(10))[0][:120]})"
    raise Unsplittable(problem)


def seconds_whole(call: Call, now: Callable[[], float]) -> float:
    """Return the seconds that the unsplit call takes, the shorter of two runs; all state is restored afterwards.

    `now` returns the current time in seconds.
    """
    found = []
    for _ in range(2):
        with _restored(call.module), RandomStates().aside(), _silent():
            begun = now()
            call.forward(*call.args, **call.named)
            found.append(now() - begun)
    return min(found)


def _narrowed(inputs: Sequence[Tensor], dims: Dims, begin: int, count: int) -> list[Tensor]:
    return [each if dim is None else narrowed(each, dim, begin, count) for each, dim in zip(inputs, dims, strict=True)]


def _tried(call: Call, inputs: Sequence[Tensor], within: Within) -> _Result:
    """Return the result of calling the module with `inputs` copied, in a context from `within`.

    All state that the call changes is restored.
    """
    copies = [_copied(each) for each in inputs]
    versions = [each._version for each in copies]
    args, named = structure.with_tensors((call.args, call.named), copies)
    parameters = [(each, each._version) for each in call.module.parameters()]
    with _restored(call.module), RandomStates().aside(), _silent(), FixedDraws(), within():  # type: ignore[no-untyped-call]
        begun = _sequence_number()
        result = call.forward(*args, **named)
        states = RandomStates().state_dict()
        kept = [(name, each.detach().clone()) for name, each in _tensors_of(call.module)]
    if any(each._version != version for each, version in zip(copies, versions, strict=True)):
        raise Unsplittable("it writes into its arguments")
    if any(each._version != version for each, version in parameters):
        raise Unsplittable("it writes into its parameters")
    leaves = list(structure.leaves(result))
    _refuse_other_parameters([each for each in leaves if isinstance(each, Tensor)], copies, begun)
    found = [each.detach() if isinstance(each, Tensor) else each for each in leaves]
    return _Result(found, kept, (states["python"], states.get("numpy")))


def _copied(tensor: Tensor) -> Tensor:
    new = tensor.detach().clone()
    return new.requires_grad_(tensor.requires_grad)


def _outputs(whole: _Result, parts: Sequence[_Result], counts: Sequence[int]) -> tuple[Part, ...]:
    """Return how each output of the whole call can be combined from the outputs of its two parts.

    `counts` has the number of rows in each part. Raises Unsplittable if an output cannot be combined.
    """
    if any(len(part.leaves) != len(whole.leaves) or len(part.kept) != len(whole.kept) for part in parts):
        raise Unsplittable("a part of a batch returns another structure")
    if any(part.python != whole.python for part in parts):
        raise Unsplittable("it draws as many numbers from random or numpy.random as there are rows")
    for (name, after), *of_parts in zip(whole.kept, *(part.kept for part in parts), strict=True):
        if not all(_close(after, each) for _, each in of_parts):
            raise Unsplittable(f"{name} depends on all rows of a batch")
    found = []
    for number, (all_rows, *own) in enumerate(zip(whole.leaves, *(part.leaves for part in parts), strict=True)):
        if isinstance(all_rows, Tensor) and all(isinstance(each, Tensor) for each in own):
            found.append(_part(all_rows, own, counts, number))
        elif not (all_rows is None or isinstance(all_rows, bool | int | str)) or any(each != all_rows for each in own):
            raise Unsplittable(f"its result {number + 1} is of type {type(all_rows).__name__}")
    if not found:
        raise Unsplittable("it returns no tensor")
    return tuple(found)


def _part(whole: Tensor, parts: Sequence[Tensor], counts: Sequence[int], number: int) -> Part:
    if any(each.dim() != whole.dim() or each.dtype != whole.dtype for each in parts):
        raise Unsplittable(f"its result {number + 1} has another shape for a part of a batch")
    for dim in range(whole.dim()):
        sizes = [each.shape[dim] for each in parts]
        if sizes == list(counts) and _alike_but(dim, whole, parts) and _close(whole, torch.cat(list(parts), dim)):
            return Part(Kind.ROWS, dim)
    if any(each.shape != whole.shape for each in parts):
        raise Unsplittable(f"rows of its result {number + 1} depend on other rows")
    exact = not (whole.is_floating_point() or whole.is_complex())
    same = all(_close(whole, each) for each in parts)
    adds_up = _close(whole, torch.stack(list(parts)).sum(0, dtype=whole.dtype))
    if same and adds_up:
        raise Undecided(f"its result {number + 1} is zero, and may be a sum or a mean")
    if exact and same:
        return Part(Kind.SAME)
    if adds_up:
        return Part(Kind.SUM)
    weighted = [each * (count / sum(counts)) for each, count in zip(parts, counts, strict=True)]
    if not exact and _close(whole, torch.stack(weighted).sum(0)):
        return Part(Kind.MEAN)
    raise Unsplittable(f"its result {number + 1} is neither a sum nor a mean over rows")


def _alike_but(dim: int, whole: Tensor, parts: Sequence[Tensor]) -> bool:
    others = [size for each, size in enumerate(whole.shape) if each != dim]
    return all([size for each, size in enumerate(part.shape) if each != dim] == others for part in parts)


def _close(a: Tensor, b: Tensor) -> bool:
    """Return True if the tensors are equal up to rounding."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b)
    coarse = torch.is_autocast_enabled(a.device.type) or (a.is_cuda and a.dtype == torch.float32)
    tolerance = _COARSE if coarse else _PRECISION.get(a.dtype, _COARSE)
    finite = torch.isfinite(a)
    if not torch.equal(finite, torch.isfinite(b)):
        return False
    scale = a[finite].abs().max() if finite.any() else torch.zeros(())
    return bool(((a - b)[finite].abs() <= tolerance * scale).all())


def _refuse_other_parameters(results: Sequence[Tensor], inputs: Sequence[Tensor], begun: int) -> None:
    """Raise Unsplittable if results depend on trainable tensors outside the module, whose gradients would be wrong.

    Autograd nodes with a number below `begun` were created before the call.
    """
    own = {id(each) for each in inputs}
    waiting = [each.grad_fn for each in results if each.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node: Any = waiting.pop()
        if is_boundary(node):
            continue
        variable = getattr(node, "variable", None)
        if (variable is not None and id(variable) not in own) or (variable is None and node._sequence_nr() < begun):
            raise Unsplittable("it computes with trained tensors that are not its parameters")
        for each, _ in node.next_functions:
            if each is not None and each not in seen:
                seen.add(each)
                waiting.append(each)


def _sequence_number() -> int:
    node: Any = torch.zeros((), requires_grad=True).view(()).grad_fn
    return int(node._sequence_nr())


def _tensors_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor for a module's buffers, and for tensors in attributes of its submodules."""
    yield from module.named_buffers()
    for name, part in module.named_modules():
        for attribute, value in vars(part).items():
            if attribute not in ("_parameters", "_buffers", "_modules", "_flat_weights"):
                for each in structure.tensors(value):
                    yield f"{name}.{attribute}".lstrip("."), each


@contextmanager
def _restored(module: nn.Module) -> Iterator[None]:
    """Restore, after the `with` block, the buffers and attributes of a module and its submodules."""
    before = [(each, each.detach().clone()) for _, each in _tensors_of(module)]
    buffers = [(part, copy.copy(part._buffers)) for part in module.modules()]
    try:
        with as_it_was({"module": module}):
            yield
    finally:
        for part, named in buffers:
            part._buffers.update(named)
        # By values and by .data: BatchNorm increments no version, and incrementing one here would break a backward.
        for each, value in before:
            if not torch.equal(each, value):
                each.data.copy_(value)


@contextmanager
def _silent() -> Iterator[None]:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
