"""Name the components of a script's checkpoints, for the runner, for notebooks that load them and for comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PART = "modules"  # state of each module by variable name, with its pickled structure if it can be recreated
STATE, SKELETON = "state", "skeleton"
KIND = "kind"  # of a value that is no module: `VALUE` for a tensor, which is its only one, or `STATE` for a state_dict
VALUE = "value"
TIMES = "times"  # of modules that a function's variable held one after another, of which this is the last
PROGRAM = "program"  # everything else, with `BLOBS`: the bytes of tensors and arrays, each named by its digest
BLOBS, STATIONS = "blobs", "stations"
SHARED = "shared"  # contents of the program that are tensors of its modules: module, key and strides, by digest


def compared(state: Mapping[str, Any], digests: Mapping[str, str]) -> Mapping[str, str]:
    """Return those digests of a checkpoint's components that must be equal if two trainings are bit-identical.

    `state` is the checkpoint's state without its tensors. Other objects of a program may contain clock times, such as
    those of a progress bar, and may change while the step stays the same. Therefore only the program's modules are
    compared, or all tensors if it has no modules.

    Examples
    --------
    >>> compared({"model": {}}, {"model": "a"})
    {'model': 'a'}
    >>> program = {"stations": [], "blobs": {"b": {}, "a": {}}}
    >>> compared({"modules": {"net": {}}, "program": program}, {"modules": "c", "program": "d", "random-0": "e"})
    {'modules': 'c'}
    >>> compared({"modules": {"net": {}}, "program": program}, {"modules": "c", "modules.frozen": "f", "program": "d"})
    {'modules': 'c', 'modules.frozen': 'f'}
    >>> compared({"modules": {}, "program": program}, {"program": "d", "random-0": "e"})
    {'program': 'a b'}
    """
    program = state.get(PROGRAM)
    if not (isinstance(program, Mapping) and STATIONS in program and BLOBS in program):
        return digests
    if not state.get(PART):
        return {PROGRAM: " ".join(sorted(program[BLOBS]))}
    return {name: digest for name, digest in digests.items() if name.partition(".")[0] == PART}
