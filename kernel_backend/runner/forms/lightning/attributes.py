"""Save and restore plain attributes of a user's objects, and states of torchmetrics, which no `state_dict` contains.

For example, a list in which a module collects outputs, or a counter of a callback, continues after a restart in the
middle of an epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from kernel_backend.checkpoints.writer import flatten
from kernel_backend.errors import DaylightError
from kernel_backend.runner.determinism.digests import tensor_digest
from kernel_backend.runner.metrics.join import host_copy

Owners = Mapping[str, Any]  # objects by name
_CONTAINERS = ("ndarray", "deque", "set", "defaultdict", "bytearray")


class Attributes:
    """Checkpoint part for objects of the user: attributes that have changed, and the states of torchmetrics."""

    def __init__(self, owners: Owners, ignored: Mapping[str, frozenset[str]]) -> None:
        """Set up the part for the objects `owners`, by name.

        `ignored` has, by the same names, the attributes that Lightning or torch define, which are not saved.
        """
        self._owners, self._ignored = owners, ignored
        # Attributes that still have their first values at a checkpoint are not saved.
        self._first = {name: digest for name, (_, digest) in self._plain().items()}

    @property
    def unheld(self) -> dict[tuple[int, str], str]:
        """Return texts such as `module.seen is a deque`, for attributes whose type this part cannot hold.

        The keys are the `id()` of the object and the attribute's name.
        """
        return {
            (id(obj), name): f"{owner}.{name} is a {type(value).__name__}"
            for owner, obj in self._owners.items()
            for name, value in self._own(owner, obj)
            if type(value).__name__ in _CONTAINERS
        }

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the changed attributes and of the states of metrics."""
        changed = {name: value for name, (value, digest) in self._plain().items() if self._first.get(name) != digest}
        return {
            "attributes": host_copy(changed),
            "modules": {name: host_copy(dict(each.state_dict())) for name, each in self.modules().items()},
            "metrics": {
                name: {"states": host_copy(dict(each.metric_state)), "updates": each._update_count}
                for name, each in self._metrics().items()
            },
        }

    def put(self, state: dict[str, Any]) -> None:
        """Write a state that `state_dict` returned into the objects and their metrics."""
        for path, value in state["attributes"].items():
            owner, _, name = path.rpartition("/")
            setattr(self._owners[owner], name, host_copy(value))
        modules, metrics = self.modules(), self._metrics()
        for name, saved in state["modules"].items():
            if name in modules:
                modules[name].load_state_dict(saved)
        for name, saved in state["metrics"].items():
            if name in metrics:
                metric = metrics[name]
                for own, value in host_copy(saved["states"]).items():
                    setattr(metric, own, _moved(value, metric.device))
                metric._update_count, metric._computed = saved["updates"], None

    def _plain(self) -> dict[str, tuple[Any, str]]:
        """Return, by name, the value of each attribute that a checkpoint can hold, with its digest."""
        found: dict[str, tuple[Any, str]] = {}
        for owner, obj in self._owners.items():
            for name, value in self._own(owner, obj):
                try:
                    tree, tensors = flatten(value)
                except DaylightError:
                    continue
                digests = {key: tensor_digest(tensor) for key, tensor in tensors.items()}
                found[f"{owner}/{name}"] = value, json.dumps([tree, digests], default=str)
        return found

    def _own(self, owner: str, obj: Any) -> list[tuple[str, Any]]:
        ignored = self._ignored.get(owner, frozenset())
        return [(name, value) for name, value in vars(obj).items() if name not in ignored]

    def modules(self) -> dict[str, nn.Module]:
        """Return the torch modules in attributes of callbacks, such as averaged weights, by callback and attribute."""
        return {
            f"{owner}/{name}": value
            for owner, obj in self._owners.items()
            if not isinstance(obj, nn.Module)
            for name, value in self._own(owner, obj)
            if isinstance(value, nn.Module) and not _is_lightning(value)
        }

    def _metrics(self) -> dict[str, Any]:
        roots = {owner: obj for owner, obj in self._owners.items() if isinstance(obj, nn.Module)} | self.modules()
        return {
            f"{root}.{path}": each
            for root, module in roots.items()
            for path, each in module.named_modules()
            if hasattr(each, "metric_state") and hasattr(each, "_update_count")
        }


def _is_lightning(module: nn.Module) -> bool:
    return hasattr(module, "training_step") and hasattr(module, "configure_optimizers")


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, list):
        return [_moved(each, device) for each in value]
    return value.to(device) if isinstance(value, Tensor) else value
