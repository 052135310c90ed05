"""Split a batch into the model's inputs and the target, by its form and by the signature of the model's `forward`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn

from kernel_backend.definition.aliases import is_target
from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.definition.functions import kind_of
from kernel_backend.runner.metrics.join import fields_of, is_dataclass

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_WHOLE = frozenset({"batch", "data", "sample"})  # arguments of `forward` that stand for a whole batch
_INSTEAD = "write def loss(model, batch), which calls the model itself"


class Inputs(NamedTuple):
    """Model inputs and target of a batch, split by a `BatchRule`."""

    positional: tuple[Any, ...]
    named: dict[str, Any]
    target: Any

    @property
    def value(self) -> Any:
        """Return the model's inputs as one value, as the user's functions get them in the argument `input`.

        It is a dict if the batch is one, the input itself if there is only one, else a tuple.
        """
        if self.named:
            return self.named
        return self.positional[0] if len(self.positional) == 1 else self.positional


class BatchRule:
    """Rule that splits a batch into inputs and target.

    Of a tuple, the last item is the target and all others are inputs. If `forward` takes fewer items, those that it
    does not take are the target; if it requires them all, all are inputs. Of a dict or a dataclass object, the items
    named like arguments of `forward` are inputs, and `labels` or `target` is the target. Batches may lack a target if
    no function of the user takes one. Then a tuple with at most as many items as `forward` requires has only inputs,
    and a batch of any other kind is the input.
    """

    def __init__(self, model: nn.Module, whole: bool = False, by_model: bool = False) -> None:
        """Set up the rule for a model. With several models, all items of a dict except the target are inputs.

        `whole` is True if none of the user's functions takes a target. `by_model` is True if the user's loss takes
        nothing but the model's output: the model then gets the target, if its `forward` has an argument named so.
        """
        self._several = several = isinstance(model, nn.ModuleDict)
        parameters = () if several else tuple(inspect.signature(model.forward).parameters.values())
        kinds = {each.kind for each in parameters}
        places = [each for each in parameters if each.kind in _BY_PLACE]
        self._places = [each.name for each in places]
        self._required = sum(each.default is each.empty for each in places)
        self._any_place = several or inspect.Parameter.VAR_POSITIONAL in kinds
        self._names = [each.name for each in parameters if each.kind in _BY_NAME]
        self._any_name = several or inspect.Parameter.VAR_KEYWORD in kinds
        self._whole = whole
        self.takes_target = any(map(is_target, self._names))  # of the model's `forward`
        self._by_model = by_model

    def split(self, batch: Any) -> Inputs:
        """Split a batch into the model's inputs and the target; raise InvalidDefinition if the rule does not apply."""
        if isinstance(batch, list | tuple):
            return self._of_items(tuple(batch))
        if isinstance(batch, Mapping) or is_dataclass(batch):
            return self._of_fields(batch, fields_of(batch))
        if self._whole:
            return Inputs((batch,), {}, None)
        raise _no_sample(batch)

    def _of_items(self, items: tuple[Any, ...]) -> Inputs:
        count, required, places = len(items), self._required, self._places
        if self._whole and 1 <= count <= max(1, required):
            return Inputs(items, {}, None)
        if count < 2:
            raise _no_sample(items)
        if count <= required or (self._by_model and count <= len(places) and is_target(places[count - 1])):
            return Inputs(items, {}, items[-1])
        if self._any_place or count - 1 <= len(places):
            return Inputs(items[:-1], {}, items[-1])
        if 0 < required == len(places):
            return Inputs(items[:required], {}, items[required:])
        takes = f"{required} to {len(places)} of them" if places else f"{', '.join(self._names)} by name alone"
        raise InvalidDefinition(f"a batch has {count} items, and the model's forward takes {takes}: {_INSTEAD}")

    def _of_fields(self, batch: Any, fields: Mapping[str, Any]) -> Inputs:
        known = [name for name in ("labels", "target") if name in fields]
        alike = known or [name for name in fields if name not in self._names and is_target(str(name))]
        targets = alike[:1] if known or len(alike) == 1 else []
        target = fields[targets[0]] if targets else None
        named = {name: each for name, each in fields.items() if name in self._names}
        others = {name: each for name, each in fields.items() if name not in (known or targets)}
        if named or self._any_name:
            return Inputs((), named or (dict(fields) if self._whole and not self._several else others), target)
        if targets and len(others) == self._required == 1:
            return Inputs(tuple(others.values()), {}, target)
        if self._required <= 1 and _WHOLE.intersection(self._places[:1]):
            return Inputs((batch,), {}, target)
        raise InvalidDefinition(
            f"a batch has {', '.join(map(str, fields))}, and the model's forward takes "
            f"{', '.join(sorted(self._names))}: give one of them the other's name, or {_INSTEAD}"
        )


def _no_sample(batch: Any) -> InvalidDefinition:
    return InvalidDefinition(
        f"a sample of the data is {kind_of(batch)}: make it (input, ..., target), or a dict with labels or target, or "
        f"{_INSTEAD}"
    )
