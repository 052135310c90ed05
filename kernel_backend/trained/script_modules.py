"""Load what a program with its own training loop has trained, by the names of its variables."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernel_backend.definition.script.parts import KIND, SKELETON, STATE, TIMES, VALUE
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.values import nearest
from kernel_backend.text.terminal import tell
from kernel_backend.trained.own_classes import with_own_classes

if TYPE_CHECKING:
    import torch

_INDEX = re.compile(r"\[('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|-?\d+)\]")


def chosen(found: Mapping[str, dict[str, Any]], name: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the variable to load, and the states of all that it holds, by names such as `members[0]`.

    `found` has the states of all that the program has trained. `name` selects a variable or an element of one, or is
    `auto`: then it is the only variable whose modules are not parts of another's. Raises InvalidRequest for an unknown
    name, and if there are several such variables.
    """
    if name == "auto":
        candidates = _candidates(found)
        if len(candidates) != 1:
            raise InvalidRequest(_several(candidates))
        name = candidates[0]
    held = {each: state for each, state in found.items() if each == name or each.startswith(f"{name}[")}
    if not held:
        there = " ".join(dict.fromkeys(map(_variable, found))) or "none"
        raise InvalidRequest(f"the program has no module {name}{nearest(name, found)}; there are: {there}")
    return name, {name: held[name]} if name in held else held


def _variable(name: str) -> str:
    return name.partition("[")[0]


def _candidates(found: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the variables that hold modules, or trained tensors where there is none, each module once.

    Left out are variables all of whose tensors another variable has, too, and copies of a module's state.
    """
    modules = [name for name, state in found.items() if KIND not in state]
    held: dict[str, set[int]] = {}
    for name in modules or [name for name, state in found.items() if state[KIND] == VALUE]:
        held.setdefault(_variable(name), set()).update(map(id, found[name][STATE].values()))
    names = list(held)
    return [
        name
        for place, name in enumerate(names)
        if not any(
            held[name] < held[other] or (held[name] == held[other] and before < place)
            for before, other in enumerate(names)
        )
    ]


def _several(candidates: list[str]) -> str:
    if not candidates:
        return (
            "the program has trained no module or tensor that a variable of it held at its end: write what it made "
            "into a file, or save it with run.artifact()"
        )
    first = candidates[0]
    names = ", ".join(candidates)
    return f'the program has trained several models: {names}; name one, as job.load("{first}") or --module {first}'


def nested(name: str, found: Mapping[str, Any]) -> Any:
    """Return the value of the variable `name`, with lists and dicts as the program had them.

    Examples
    --------
    >>> nested("nets", {"nets[0]": "a", "nets[1]": "b"}), nested("nets", {"nets['a'][0]": 1, "nets['b'].net": 2})
    (['a', 'b'], {'a': [1], 'b': {'net': 2}})
    """
    if name in found:
        return found[name]
    inner: dict[Any, dict[str, Any]] = {}
    for each, value in found.items():
        index = _INDEX.match(each, len(name))
        key = ast.literal_eval(index[1]) if index else each[len(name) + 1 :]
        inner.setdefault(key, {})[each[index.end() :] if index else ""] = value
    values = {key: nested("", each) for key, each in inner.items()}
    return list(values.values()) if list(values) == list(range(len(values))) else values


def made(name: str, state: dict[str, Any], definitions: ModuleType) -> torch.nn.Module | torch.Tensor | dict[str, Any]:
    """Return the module `name` with its weights, in evaluation mode; or what is trained without a module.

    If the module cannot be created from `definitions`, the reason is printed, and its state_dict returned.
    """
    from kernel_backend.trained.skeleton import module_of

    if state.get(KIND) == VALUE:
        tensor: torch.Tensor = state[STATE][VALUE]
        return tensor
    if state.get(KIND) == STATE:
        return dict(state[STATE])
    if TIMES in state:
        several = f"{name} is the last of {state[TIMES]} modules that this variable of a function has held"
        tell(f"{several}: to have each, let the program keep them in a list or dict", file=sys.stderr)
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
