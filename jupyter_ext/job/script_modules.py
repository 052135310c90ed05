"""Load the torch modules of a program that has its own training loop, by the names of its variables."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jupyter_ext.job.own_classes import with_own_classes
from kernel_backend.definition.script.parts import SKELETON, STATE
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.values import nearest
from kernel_backend.text.terminal import tell

if TYPE_CHECKING:
    import torch

_USUAL = ("model", "net", "network")


def chosen(found: dict[str, Any], name: str) -> dict[str, Any]:
    """Return those torch modules of a program that are to be loaded, by the names of their variables.

    `found` has all of them. `name` selects one, or is `auto`: then it is the only module, else one with a usual name
    such as `model`, else all. Raises InvalidRequest for an unknown name.
    """
    if name == "auto":
        likely = list(found) if len(found) == 1 else [each for each in _USUAL if each in found][:1]
        return {each: found[each] for each in likely} or found
    if name not in found:
        raise InvalidRequest(
            f"the program has no module {name}{nearest(name, found)}; there are: {' '.join(found) or 'none'}"
        )
    return {name: found[name]}


def made(name: str, state: dict[str, Any], definitions: ModuleType) -> torch.nn.Module | dict[str, Any]:
    """Return the module `name` with its weights, in evaluation mode.

    If the module cannot be created from `definitions`, the reason is printed, and its state_dict returned.
    """
    from kernel_backend.runner.forms.script.state.skeleton import module_of

    if SKELETON not in state:
        tell(f"{name} has what cannot be pickled: this is its state_dict", file=sys.stderr)
        return dict(state[STATE])
    try:
        module = module_of(state[SKELETON], vars(definitions))
    except Exception as error:  # errors of the user's classes
        tell(f"{name} cannot be made here ({type(error).__name__}: {error}): this is its state_dict", file=sys.stderr)
        return dict(state[STATE])
    module.load_state_dict(state[STATE])
    module.eval()
    return with_own_classes(module, definitions, vars(sys.modules["__main__"]))
