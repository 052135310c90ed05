"""Record the calls of a Lightning cell (Trainer, `fit`) while the cell is imported, instead of training.

The functions of this module replace the cell's own calls, see `source.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from kernel_backend.errors import InvalidDefinition

FIT = "_daylight_fit"  # the variable of the module that holds the FitCall
_makers: WeakKeyDictionary[Any, Callable[[Mapping[str, Any]], Any]] = WeakKeyDictionary()


class TrainerCall:
    """Arguments with which a notebook cell creates its Trainer."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments

    def __getattr__(self, name: str) -> Any:
        raise InvalidDefinition(
            f"the cell uses trainer.{name} before trainer.fit, and the Trainer of a job is made later: take that out"
        )


class FitCall(NamedTuple):
    """Arguments of `trainer.fit`; None for arguments that were left out."""

    trainer: TrainerCall
    model: Any
    train_dataloaders: Any = None
    val_dataloaders: Any = None
    datamodule: Any = None


def trainer(**arguments: Any) -> TrainerCall:
    """Return a record of the arguments of `Trainer(...)`, instead of creating a Trainer."""
    return TrainerCall(**arguments)


def made(kind: type, values: Mapping[str, Any], *arguments: Any, **named: Any) -> Any:
    """Create an instance of class `kind` with the cell's arguments, in which the hyperparameters `values` are replaced.

    The creation is recorded, so that `made_again` can repeat it.
    """
    given = dict(zip(inspect.signature(kind).parameters, arguments, strict=False)) | named

    def again(values: Mapping[str, Any]) -> Any:
        return kind(**given | dict(values))

    instance = again(values)
    _makers[instance] = again
    return instance


def made_again(instance: Any, values: Mapping[str, Any]) -> Any:
    """Return a new instance like `instance`, but with the hyperparameters `values`.

    An object that `made` has not created is returned unchanged.
    """
    maker = _makers.get(instance)
    return instance if maker is None else maker(values)


def fit(
    trainer: TrainerCall,
    model: Any,
    train_dataloaders: Any = None,
    val_dataloaders: Any = None,
    datamodule: Any = None,
) -> FitCall:
    """Return a record of the arguments of `trainer.fit(...)`, instead of training."""
    if hasattr(train_dataloaders, "train_dataloader") and datamodule is None:
        train_dataloaders, datamodule = None, train_dataloaders
    return FitCall(trainer, model, train_dataloaders, val_dataloaders, datamodule)
