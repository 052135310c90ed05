"""Split the outermost calls of a program's trained modules over the ranks; all else runs on every rank."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.forked_children import in_children
from kernel_backend.runner.forms.script.split import structure
from kernel_backend.runner.forms.script.split.batch_norm import FixedStatistics, normalise
from kernel_backend.runner.forms.script.split.benefit import Benefit, TimedRanks
from kernel_backend.runner.forms.script.split.draws import own_draws
from kernel_backend.runner.forms.script.split.exchange import Exchange, enter, leave, share
from kernel_backend.runner.forms.script.split.parameters import replaced, trained
from kernel_backend.runner.forms.script.split.plans import Plans
from kernel_backend.runner.forms.script.split.rows import Kind, Part, Plan, rows_of
from kernel_backend.runner.forms.script.split.trial import Call, Within, seconds_whole
from kernel_backend.runner.ranks.backends import Ranks
from kernel_backend.runner.ranks.batch_norm import batch_norm

_call_module = nn.Module.__call__


class SplitCalls:
    """Splitting of module calls over the ranks, from `install` to `close`. All ranks run the program on equal batches.

    A call is split if gradients are enabled, and if it is the outermost call of a module in training mode with
    trainable parameters. Modules that cannot be split run whole, and modules that they call are split if possible.
    """

    def __init__(self, ranks: Ranks, device: torch.device, note: Callable[[str], None]) -> None:
        """Set up the splitting. Tensors are sent between the ranks on `device`.

        `note` shows the user a message; it is called on every rank.
        """
        self._timed = timed = TimedRanks(ranks)
        self._exchange = Exchange(ranks, device)
        self._ranks, self._note = ranks, note
        self._plans = Plans(self._exchange, self._trials)
        self._benefit = Benefit(ranks.size, device, self._waited)
        self._exchange.on_backward = self._benefit.backward
        self._whole: dict[str, str] = {}  # reason why each module runs whole, by name
        self._evaluated: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # called in evaluation mode with gradients on
        self._count = 0  # number of split calls
        self._nested = False  # True within a call in which nothing more is split
        self._norm: Callable[..., Tensor] | None = None  # replacement for batch normalization in training mode
        self._split_modules: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # modules whose newest call was split
        self._summed = partial(batch_norm, cast("Ranks", timed))
        self._thread = threading.get_ident()

    def install(self) -> None:
        """Start splitting the module calls of this thread, and give all ranks equal random states."""
        RandomStates().load_state_dict(self._ranks.broadcast_object(RandomStates().state_dict()))

        def call(module: nn.Module, /, *args: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling() or self._nested or threading.get_ident() != self._thread:
                return _call_module(module, *args, **named)
            return self._called(module, args, named)

        def norm(
            input: Tensor,
            running_mean: Tensor | None,
            running_var: Tensor | None,
            weight: Tensor | None = None,
            bias: Tensor | None = None,
            training: bool = False,
            momentum: float = 0.1,
            eps: float = 1e-5,
        ) -> Tensor:
            if not training or self._norm is None or threading.get_ident() != self._thread:
                return normalise(input, running_mean, running_var, weight, bias, training, momentum, eps)
            return self._norm(input, running_mean, running_var, weight, bias, momentum, eps)

        in_children(self.close)  # other ranks do not take part in what a forked process computes
        self._benefit.install()
        nn.Module.__call__ = call  # type: ignore[method-assign]
        functional.batch_norm = norm

    def close(self) -> None:
        """Restore torch's own module calls."""
        nn.Module.__call__ = _call_module  # type: ignore[method-assign]
        functional.batch_norm = normalise
        self._benefit.close()

    def end_step(self, *_: int) -> None:
        """Handle the end of a step. After the first steps, warn the user once if several slots are hardly faster."""
        measured = self._benefit.measures
        text = self._benefit.end_step()
        if measured and not self._benefit.measures and not self._count:
            text = f"{self._ranks.size} slots bring 1.0x: {self._nothing_split()}"
        if text is not None:
            self._note(text)

    def state_dict(self) -> dict[str, int]:
        """Return the number of calls split so far, from which the random seed of each split call is derived."""
        return {"count": self._count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the number of split calls from a checkpoint, which may come from another number of ranks."""
        self._count = state["count"]

    def _called(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a module, split over the ranks if possible.

        The module's own hooks get whole inputs and outputs.
        """
        if torch._C._current_graph_task_id() != -1:
            return self._recomputed(module, args, named)
        if not (module.training and torch.is_grad_enabled() and trained(module)):
            if not module.training and torch.is_grad_enabled() and self._benefit.measures:
                self._evaluated.add(module)
            return _call_module(module, *args, **named)
        if module._compiled_call_impl is not None:
            return self._forward(module, module._compiled_call_impl, *args, **named)
        before = vars(module).get("forward")
        vars(module)["forward"] = partial(self._forward, module, module.forward)
        try:
            return _call_module(module, *args, **named)
        finally:
            if before is None:
                vars(module).pop("forward", None)
            else:
                vars(module)["forward"] = before

    def _recomputed(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a module again in a backward pass (activation checkpointing), on this rank's rows if it was split."""
        if not any(module is each for root in self._split_modules for each in root.modules()):
            return _call_module(module, *args, **named)
        with self._inside(self._summed), replaced(module, partial(share, self._exchange)):
            return _call_module(module, *args, **named)

    def _forward(self, module: nn.Module, forward: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        call = Call(module, forward, args, named)
        decision = self._plans.decide(call)
        if isinstance(decision, Plan):
            self._split_modules.add(module)
            return self._split(call, decision)
        self._split_modules.discard(module)
        if self._benefit.measures:
            self._whole[type(module).__name__] = decision.reason
        if decision.inner:
            return forward(*args, **named)
        with self._inside(None):
            return forward(*args, **named)

    def _split(self, call: Call, plan: Plan) -> Any:
        exchange, arguments = self._exchange, (call.args, call.named)
        inputs = structure.tensors(arguments)
        rows = rows_of([each.shape for each in inputs], plan.inputs)
        args, named, anchors = self._own(arguments, inputs, plan, rows)
        self._count += 1
        begun, waited = self._benefit.now(), self._waited()
        with (
            self._inside(self._summed),
            own_draws(self._count, exchange.rank),
            replaced(call.module, partial(share, exchange)) as more,
        ):
            result = call.forward(*args, **named)
        if self._benefit.measures:
            self._measure(call, self._benefit.now() - begun - (self._waited() - waited))
        outputs = structure.tensors(result)
        self._check(call, plan, outputs, rows)
        return structure.with_tensors(result, leave(exchange, plan.outputs, rows, outputs, anchors + more))

    def _measure(self, call: Call, seconds: float) -> None:
        """Record that this rank's rows of a call took `seconds`; in some steps, measure the unsplit call, too."""
        benefit = self._benefit
        benefit.called(seconds)
        if benefit.compares:
            begun = benefit.now()
            with self._inside(None):
                whole = seconds_whole(call, benefit.now)
            benefit.compare(whole, seconds, benefit.now() - begun)

    def _waited(self) -> float:
        """Return the seconds that this rank has spent on communication so far."""
        return self._exchange.seconds + self._timed.seconds

    def _nothing_split(self) -> str:
        """Return the reason why no call of the program was split."""
        if self._whole:
            name, reason = next(iter(self._whole.items()))
            return f"calls of {name} run whole on each, since {reason}"
        if evaluated := [type(each).__name__ for each in self._evaluated if trained(each)]:
            return f"{evaluated[0]} is trained in evaluation mode, and a split needs training mode: call its train()"
        return "no module with trained parameters is called, and each computes the whole step"

    def _own(
        self, arguments: Any, inputs: list[Tensor], plan: Plan, rows: int
    ) -> tuple[tuple[Any, ...], dict[str, Any], list[Tensor]]:
        """Return a call's positional and named arguments with only this rank's rows of its `inputs`, and anchors.

        `inputs` are the tensors in `arguments`, `rows` is the number of rows of the whole batch. Anchors are scalars to
        be passed to `leave`, which joins the ranks' results.
        """
        exchange = self._exchange
        apart = [index for index, dim in enumerate(plan.inputs) if dim is not None]
        trains = [index for index, dim in enumerate(plan.inputs) if dim is None and inputs[index].requires_grad]
        parts = [Part(Kind.ROWS, plan.inputs[index]) for index in apart]
        own, anchors = enter(exchange, parts, rows, [inputs[index] for index in apart])
        shared, more = share(exchange, [inputs[index] for index in trains])
        new = dict(zip(apart, own, strict=True)) | dict(zip(trains, shared, strict=True))
        args, named = structure.with_tensors(arguments, [new.get(index, each) for index, each in enumerate(inputs)])
        return args, named, anchors + more

    def _check(self, call: Call, plan: Plan, outputs: list[Tensor], rows: int) -> None:
        """Raise InvalidDefinition if outputs of a split call have other shapes than in the test run of such a call."""
        own = self._exchange.own(rows)[1]
        fits = len(outputs) == len(plan.outputs) and all(
            part.dim is None or (part.dim < each.dim() and each.shape[part.dim] == own)
            for each, part in zip(outputs, plan.outputs, strict=True)
        )
        if not fits:
            shapes = ", ".join(str(tuple(each.shape)) for each in outputs)
            raise InvalidDefinition(
                f"{type(call.module).__name__} returned {shapes or 'no tensor'} for {own} of {rows} rows, unlike in an "
                "earlier call, so its results cannot be joined over the slots: submit it with --slots 1"
            )

    def _trials(self, call: Call) -> Within:
        """Return a function that creates the context in which a test run of this call is made.

        In that context, no calls are split, and batches are normalized by fixed statistics.
        """
        fixed = FixedStatistics()

        @contextmanager
        def within() -> Iterator[None]:
            fixed.begin()
            with (
                self._inside(fixed),
                replaced(call.module, partial(share, self._exchange)),
            ):
                yield

        return within

    @contextmanager
    def _inside(self, norm: Callable[..., Tensor] | None) -> Iterator[None]:
        """Split no calls in the `with` block; `norm`, if not None, replaces torch's `batch_norm` there."""
        before, self._nested, self._norm = (self._nested, self._norm), True, norm
        try:
            yield
        finally:
            self._nested, self._norm = before
