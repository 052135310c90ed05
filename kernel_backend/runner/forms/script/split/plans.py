"""Remember how calls of each module are split, and agree with the other ranks on calls of a new kind."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.determinism.digests import tensor_digest
from kernel_backend.runner.forms.script.split import structure
from kernel_backend.runner.forms.script.split.draws import Unsplittable
from kernel_backend.runner.forms.script.split.exchange import Exchange
from kernel_backend.runner.forms.script.split.modules import is_small, problem_of
from kernel_backend.runner.forms.script.split.rows import LEAST_ROWS, Kind, Plan, fits
from kernel_backend.runner.forms.script.split.trial import Call, Undecided, Within, find_plan

_ALIKE = 3  # number of shapes with equal plans after which other shapes need no trial
_MOST_TRIALS = 48  # limit per module: one whose calls never repeat runs whole
_MOST_UNDECIDED = 8


class Whole(NamedTuple):
    """Decision that a call runs unsplit on every rank; with `inner`, calls of modules within it may still be split."""

    reason: str
    inner: bool = True


Decision = Plan | Whole
Shapes = tuple[torch.Size, ...]


class _Module:
    """Decisions on how the calls of one module are split, by arguments' shapes and kinds."""

    def __init__(self) -> None:
        self.known: dict[Any, Decision] = {}  # by pattern, shapes and unevenness
        self.averages: set[Any] = set()  # patterns with an output that is a mean over rows
        self.trials = self.undecided = 0
        self.digested = False

    def alike(self, pattern: Any, uneven: Any) -> Plan | None:
        """Return how a call is split, if all test runs of calls with the same `pattern` and `uneven` showed the same.

        Otherwise, or after too few test runs, return None. `pattern` describes the arguments without their sizes;
        `uneven` says whether their rows differ in the number of zeros and negative values.
        """
        found = [each for (known, _, also), each in self.known.items() if (known, also) == (pattern, uneven)]
        plans = {each for each in found if isinstance(each, Plan)}
        others = any(isinstance(each, Whole) and each.inner for each in found)
        return plans.pop() if len(plans) == 1 and len(found) >= _ALIKE and not others else None


class Plans:
    """Decisions on how the calls of a program's modules are split over the ranks."""

    def __init__(self, exchange: Exchange, within: Callable[[Call], Within]) -> None:
        """Set up without decisions. `within(call)` returns a function that creates the context for a test run."""
        self._exchange, self._within = exchange, within
        self._modules: weakref.WeakKeyDictionary[nn.Module, _Module] = weakref.WeakKeyDictionary()

    def decide(self, call: Call) -> Decision:
        """Return how to run a call. All ranks call this, and the decision is equal on all of them.

        Raises InvalidDefinition if the ranks have called the module with different values.
        """
        problem = problem_of(call.module)
        if problem is not None:
            return Whole(problem)
        if is_small(call.module):
            return Whole("it is a small layer", inner=False)
        module = self._modules.setdefault(call.module, _Module())
        inputs = structure.tensors((call.args, call.named))
        shapes = tuple(each.shape for each in inputs)
        pattern = (structure.pattern((call.args, call.named)), _autocast(inputs))
        uneven = tuple(_uneven(each) for each in inputs) if pattern in module.averages else ()
        decision = module.known.get((pattern, shapes, uneven))
        if decision is None:
            decision = self._new(module, call, inputs, shapes, pattern, uneven)
        return decision

    def _new(
        self, module: _Module, call: Call, inputs: Sequence[Tensor], shapes: Shapes, pattern: Any, uneven: Any
    ) -> Decision:
        decision: Decision | None = module.alike(pattern, uneven)
        few = Whole(
            f"it is called with {_rows(shapes)}, and a split needs {LEAST_ROWS * self._exchange.size}", inner=False
        )
        if isinstance(decision, Plan) and not fits(shapes, decision.inputs, self._exchange.size):
            decision = few
        if decision is None and module.trials >= _MOST_TRIALS:
            return Whole("its calls differ each time")
        if decision is None:
            module.trials += 1
            decision = self._agreed(module, call, inputs)
            if (
                isinstance(decision, Whole)
                and inputs
                and inputs[0].dim()
                and len(inputs[0]) < LEAST_ROWS * self._exchange.size
            ):
                decision = few
        if decision == _UNDECIDED:
            module.undecided += 1
            if module.undecided < _MOST_UNDECIDED:
                return decision
        if isinstance(decision, Plan) and any(each.kind is Kind.MEAN for each in decision.outputs):
            module.averages.add(pattern)
            uneven = tuple(_uneven(each) for each in inputs)
        module.known[pattern, shapes, uneven] = decision
        return decision

    def _agreed(self, module: _Module, call: Call, inputs: Sequence[Tensor]) -> Decision:
        """Test on each rank how the call can be split. Return the result if all ranks have the same, else run it whole.

        Raises InvalidDefinition if the ranks have called the module with different values.
        """
        decision: Decision
        try:
            decision = find_plan(call, self._exchange.size, self._within(call))
        except Undecided:
            decision = _UNDECIDED
        except Unsplittable as reason:
            decision = Whole(str(reason))
        parameters = [] if module.digested else list(call.module.parameters())
        module.digested = True
        dense = [each for each in (*inputs, *parameters) if each.layout is torch.strided]
        digests = [tensor_digest(each.detach()) for each in dense]
        everyone = self._exchange.agree((decision, digests))
        name = type(call.module).__name__
        for rank, (_, theirs) in enumerate(everyone):
            if theirs != digests:
                raise InvalidDefinition(
                    f"rank {rank} calls {name} with other numbers than rank {self._exchange.rank}, and every rank runs "
                    "the whole program: seed np.random.default_rng() and random.Random(), and not from the time"
                )
        return (
            decision
            if all(each == decision for each, _ in everyone)
            else Whole("the ranks found other ways to split it")
        )


_UNDECIDED = Whole("its results so far do not tell how")


def _rows(shapes: Shapes) -> str:
    count = next((shape[0] for shape in shapes if len(shape)), 1)
    return f"{count} row{'s' * (count != 1)}"


def _autocast(inputs: Sequence[Tensor]) -> torch.dtype | None:
    kind = inputs[0].device.type if inputs else "cpu"
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _uneven(tensor: Tensor) -> tuple[bool, bool]:
    """Return whether a tensor's rows differ in their number of negative values, and in their number of zeros.

    Padding and masks make them differ. A mean over the values that are not padding equals the mean over rows only if
    all rows have equal counts.
    """
    if not tensor.dim() or tensor.is_complex():
        return False, False
    rows = tensor.detach().reshape(len(tensor), -1)
    counts = ((rows < 0).sum(1), (rows == 0).sum(1))
    return tuple(bool((each != each[0]).any()) if len(each) else False for each in counts)  # type: ignore[return-value]
