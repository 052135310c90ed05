"""Make test runs of calls independent of random numbers, and seed the random numbers of split calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernel_backend.runner.determinism import seeds

_FILLED: Mapping[
    str, Callable[[Mapping[str, Any]], float]
] = {  # returns a constant in place of an operation's random numbers
    "bernoulli": lambda arguments: 1.0,
    "exponential": lambda arguments: 1.0,
    "geometric": lambda arguments: 1.0,
    "normal": lambda arguments: 0.0,
    "rand": lambda arguments: 0.5,
    "rand_like": lambda arguments: 0.5,
    "randn": lambda arguments: 0.0,
    "randn_like": lambda arguments: 0.0,
    "uniform": lambda arguments: (arguments.get("from", 0.0) + arguments.get("to", 1.0)) / 2,
    "randint": lambda arguments: (arguments.get("low", 0) + arguments["high"]) // 2,
    "randint_like": lambda arguments: (arguments.get("low", 0) + arguments["high"]) // 2,
}


class Unsplittable(Exception):
    """Raised if splitting the batch of a call changes its results; the message is the reason."""


class FixedDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Mode in which random operations return the same number for all rows: dropout is off, and noise is its mean."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        names = [each.name for each in func._schema.arguments]
        arguments = dict(zip(names, args, strict=False)) | (kwargs or {})
        if name == "native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        if "dropout_p" in names:  # attention
            return func(**{each: arguments[each] for each in names if each in arguments} | {"dropout_p": 0.0})
        fill = _FILLED.get(name.rstrip("_"))
        if fill is None:
            raise Unsplittable(f"it draws random numbers with torch.{name.rstrip('_')}")
        if name.endswith("_"):
            return args[0].fill_(fill(arguments))
        if isinstance(args[0] if args else None, Tensor):
            return torch.full_like(args[0], fill(arguments))
        made = {each: arguments[each] for each in ("dtype", "device", "layout", "pin_memory") if each in arguments}
        if name == "randint" and made.get("dtype") is None:
            made["dtype"] = torch.int64
        return torch.full(arguments["size"], fill(arguments), **made)


@contextmanager
def own_draws(*place: int) -> Iterator[None]:
    """Seed torch's generators by the program's seed and `place` in the `with` block, then restore them.

    `place` are numbers that identify the draws, such as those of a call and of this rank.
    """
    seed = seeds.mix(torch.initial_seed(), "split", *place)
    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    before, of_gpu = torch.get_rng_state(), torch.cuda.get_rng_state() if on_gpu else None
    torch.default_generator.manual_seed(seed)
    if on_gpu:
        torch.cuda.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
        if of_gpu is not None:
            torch.cuda.set_rng_state(of_gpu)
