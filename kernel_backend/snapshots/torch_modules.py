"""Pickle torch modules with parametrizations, for which torch changes a module's class at run time."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import nn

_PARAMETRIZE = "torch.nn.utils.parametrize"
_LOCAL = "torch.nn.utils.parametrizations"  # whose `weight_norm` leaves a function in a module that has no name
_PRE_HOOKS = "_load_state_dict_pre_hooks"


class ModuleParts(NamedTuple):
    """Parts of a module: its class, the tensors that parametrizations compute, and its attributes.

    The class is that of the module before its parametrizations.
    """

    kind: Any
    computed: list[str]
    state: Any


def module_parts(module: nn.Module) -> ModuleParts:
    """Return a module's parts, without the function by which torch's `weight_norm` reads older weights."""
    held: Any = module
    kind: Any = type(module)
    computed: list[str] = []
    if kind.__module__ == _PARAMETRIZE and hasattr(module, "parametrizations"):
        (kind,) = kind.__bases__
        computed = list(held.parametrizations)
    own = kind.__getstate__ is not object.__getstate__
    state = kind.__getstate__(module) if own else dict(vars(module))
    if isinstance(state, dict) and (hooks := state.get(_PRE_HOOKS)):
        kept = {key: each for key, each in hooks.items() if not _is_local(each)}
        state = state | {_PRE_HOOKS: OrderedDict(kept)}
    return ModuleParts(kind, computed, state)


def reduced_module(obj: Any) -> Any:
    """Return how to pickle a module that has, or had, parametrizations of torch; NotImplemented for other objects."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(obj, torch.nn.Module):
        return NotImplemented
    hooks = vars(obj).get(_PRE_HOOKS, {}).values()
    if type(obj).__module__ != _PARAMETRIZE and not any(map(_is_local, hooks)):
        return NotImplemented
    kind, computed, state = module_parts(obj)
    return (remade, (kind, computed), state)


def _is_local(hook: Any) -> bool:
    return getattr(getattr(hook, "hook", None), "__module__", None) == _LOCAL


def remade(kind: type[nn.Module], computed: list[str]) -> nn.Module:
    """Return a module of a class, without a call of its `__init__`, whose parametrizations compute some tensors.

    Pickles call it by name.
    """
    from torch.nn.utils import parametrize

    module = kind.__new__(kind)
    if computed:
        parametrize._inject_new_class(module)
    for name in computed:
        parametrize._inject_property(module, name)
    return module
