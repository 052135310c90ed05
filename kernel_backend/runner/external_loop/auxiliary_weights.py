"""Hold what users' code trains beside the model that a framework trains: second networks, bare weights, averages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from kernel_backend.checkpoints.writer import can_hold
from kernel_backend.runner.determinism import exactness
from kernel_backend.runner.determinism.reachability import held_by

if TYPE_CHECKING:
    from kernel_backend.model.launch.launch_spec import LaunchSpec
    from kernel_backend.runner.context import RankContext
    from kernel_backend.runner.external_loop.training import ExternalTraining

BESIDE = "beside"  # the checkpoint part with the weights, and the prefix of those of optimizers and schedules


class AuxiliaryWeights(nn.Module):
    """Tensors outside of all registered modules; those that were changed in place are in the checkpoints.

    They are buffers, which may differ from slot to slot. Tensors that keep their first values, such as a teacher's or
    a data set's, are left out: the user's code makes them again.
    """

    def __init__(self, tensors: Mapping[str, Tensor], unseen: bool) -> None:
        """Record torch's version counter of each tensor, to see later which have changed.

        With `unseen`, all weights count as changed, because code may write to them by `.data`, which counts no version.
        """
        super().__init__()
        self._first: dict[str, int | None] = {}
        for way, each in tensors.items():
            name = way.replace(".", "/")
            self.register_buffer(name, each)
            self._first[name] = None if unseen and isinstance(each, nn.Parameter) else each._version

    def named_buffers(self, *arguments: Any, **options: Any) -> Iterator[tuple[str, Tensor]]:
        """Yield name and tensor of those that have changed."""
        for name, each in super().named_buffers(*arguments, **options):
            if each._version != self._first[name]:
                yield name, each

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return the tensors that have changed, by name."""
        return {name: each.detach() for name, each in self.named_buffers(remove_duplicate=False)}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Copy saved values into the tensors, which stay the same objects: an optimizer may train them."""
        with torch.no_grad():
            for name, saved in state_dict.items():
                own = self._buffers.get(name)
                if own is not None and own.shape == saved.shape:
                    own.copy_(saved)


class Auxiliaries(NamedTuple):
    """Tensors, optimizers and schedules that users' code trains beside registered modules, by a short path to each."""

    tensors: dict[str, Tensor]
    steppers: dict[str, Optimizer | LRScheduler]


def auxiliary_of(called: Mapping[str, Any], registered: Iterable[Any], apart: Iterable[Any] = ()) -> Auxiliaries:
    """Return the tensors, optimizers and schedules reached from `called` that are not among the `registered` values.

    Objects that are `apart`, such as those of the framework, are not searched.
    """
    registered = list(registered)
    modules = [each for each in registered if isinstance(each, nn.Module)]
    known = {_memory(each) for module in modules for each in _tensors_of(module).values()}
    closed = [*apart, *(each for each in registered if not isinstance(each, nn.Module))]
    found = Auxiliaries({}, {})
    reached = held_by(called, tensors=True, apart=closed)
    # A weight is named by its module if it has one.
    for way, obj in sorted(reached, key=lambda each: isinstance(each[1], Optimizer) - isinstance(each[1], nn.Module)):
        if isinstance(obj, Optimizer | LRScheduler):
            _add(found.steppers, way, obj)
        if isinstance(obj, nn.Module) and hasattr(type(obj), "metric_state"):  # of torchmetrics, which resets it
            known |= {_memory(each) for each in vars(obj).values() if isinstance(each, Tensor)}
        for name, each in _weights_of(obj).items():
            if each.grad_fn is None and can_hold(each) and _memory(each) not in known:
                known.add(_memory(each))
                _add(found.tensors, f"{way}{name}", each)
    return found


def _parts(found: Auxiliaries, model: nn.Module, job: LaunchSpec) -> dict[str, Any]:
    """Return what checkpoints are to hold of what was found beside a model, by the names of their parts."""
    optimizers = [each for each in found.steppers.values() if isinstance(each, Optimizer)]
    unseen = exactness.writes_unseen(model, optimizers, [Path(job.code), Path(job.cwd)])
    weights = {BESIDE: AuxiliaryWeights(found.tensors, unseen)} if found.tensors else {}
    return weights | {f"{BESIDE}.{name}": each for name, each in found.steppers.items()}


def hold_auxiliary(
    training: ExternalTraining,
    register: Callable[[str, Any], object],
    apart: Iterable[Any] = (),
    held: Iterable[nn.Module] = (),
) -> Auxiliaries:
    """Make part of the checkpoints, by `register`, what code called in the training's steps trains beside its model.

    Objects that are `apart` are not searched; modules `held` by another part are left out. Return what was found.
    """
    found = auxiliary_of(training.called, [*training.registered, *held], apart)
    model = nn.ModuleList(training.contents.modules.values())
    for name, value in _parts(found, model, training.rank.job).items():
        register(name, value)
    training.ends.append(UnheldOptimizers(training.rank, training.registered, lambda: training.position.step).close)
    return found


class UnheldOptimizers:
    """Check that no optimizer trains weights from step to step that checkpoints do not hold: it limits the guarantee.

    One that is made and used up within a step, as for a probe or an adversarial sample, is none.
    """

    def __init__(self, rank: RankContext, held: Iterable[Any], step: Callable[[], int]) -> None:
        """Install the check as a hook on the steps of all optimizers but those `held`; `step` returns the step."""
        self._rank, self._step = rank, step
        self._held = {id(each) for each in held}
        self._seen = WeakKeyDictionary[Optimizer, int]()
        self._handle = register_optimizer_step_pre_hook(self._before_step)

    def close(self) -> None:
        """Remove the hook."""
        self._handle.remove()

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if id(optimizer) in self._held or self._seen.setdefault(optimizer, self._step()) == self._step():
            return
        self._held.add(id(optimizer))
        self._rank.limit_guarantee(
            f"not reproducible: a further {type(optimizer).__name__} trains weights from step to step, and no "
            "checkpoint holds them: make it before the training begins, where the code that uses it finds it by a "
            "name or an attribute"
        )


def _weights_of(obj: Any) -> dict[str, Tensor]:
    if isinstance(obj, Tensor):
        return {"": obj}
    if isinstance(obj, nn.Module):
        return {f".{name}": each for name, each in _tensors_of(obj).items()}
    if isinstance(obj, Optimizer):
        trained = [each for group in obj.param_groups for each in group["params"]]
        return {f".{place}": each for place, each in enumerate(trained)}
    return {}


def _memory(tensor: Tensor) -> tuple[int, int]:
    """Return what is equal for two tensors that are the same numbers, such as a weight and its `detach()`."""
    return tensor.data_ptr() or id(tensor), tensor.numel()


def _tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name, of AuxiliaryWeights also those that have not changed."""
    return {
        f"{path}.{name}".lstrip("."): each
        for path, part in module.named_modules()
        for name, each in (*part._parameters.items(), *part._buffers.items())
        if each is not None
    }


def _add(found: dict[str, Any], way: str, value: Any) -> None:
    """Add a value by the path to it from the last global or closure on, such as `head.weight` or `trainer.head`."""
    short = re.split(r"\((?:global )?(?=\w+\))", way)[-1]
    name = re.sub(r"\W+", ".", short).strip(".")
    while name in found:
        name += "_"
    found[name] = value
