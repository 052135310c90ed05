"""Find secrets in the files and options of a submission; report their locations, but never their text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from jupyter_ext.capture import Capture, Problem
from jupyter_ext.capture.problems import cell_of
from kernel_backend.model.record import Value
from kernel_backend.model.snapshot import CAPTURED, PROJECT
from kernel_backend.secret_scan import OVERRIDE, find_secrets, is_code, leak_text, leaks_on_the_line
from kernel_backend.snapshots.loaded import TRAVELLED

_TEXTS = (b"'<U", b"'|S", b"'>U")  # numpy's string dtypes, in the header of its files
_UNNAMED = "name the file in .daylightignore and in no --include"
_BEGINNING = 8192  # bytes that distinguish text from binary data


def find_leaks(
    capture: Capture, files: Mapping[str, bytes], given: Mapping[str, Value], known: Sequence[str]
) -> Iterator[Problem]:
    """Yield a problem for each line of the definition, `files` or `given` that seems to contain a secret.

    `given` holds hyperparameters by name, and options by flag. `known` are secrets to search for literally, such as the
    value of the environment variable `API_TOKEN`.
    """
    for line, kind in find_secrets(capture.source, known):
        place = capture.where(line)
        yield _problem(place, kind, cell_of(place), f"end the line with # {OVERRIDE}")
    for name, data in sorted(files.items()):
        yield from _in_file(name, data, known)
    for kind, message in leaks_on_the_line(given, known):
        yield Problem("secret", kind, None, message)


def without_secrets(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return the names that may be displayed: they contain none of the `known` secrets, and do not look like one."""
    return [name for name in names if not find_secrets(repr(name), known)]


def _in_file(name: str, data: bytes, known: Sequence[str]) -> Iterator[Problem]:
    top, _, own = name.partition("/")
    if name.startswith(f"{TRAVELLED}/"):
        return  # its experiment was checked when it was submitted
    if top == CAPTURED:
        found = find_secrets(_text(own, data), known)
        if found:
            names = own.rpartition(".")[0].replace("+", ",")
            yield _problem(f"--capture {names}", found[0][1], None, "capture it without what looks so")
    elif b"\0" not in data[:_BEGINNING]:
        otherwise = f"end the line with # {OVERRIDE}" if own.endswith(".py") else _UNNAMED
        for line, kind in find_secrets(data.decode(errors="replace"), known, is_code(name)):
            yield _problem(f"{own if top == PROJECT else name} line {line}", kind, None, otherwise)


def _text(file: str, data: bytes) -> str:
    """Return the text in a captured value's file, to be searched for secrets."""
    if file.endswith(".safetensors"):
        return ""
    if file.endswith(".npy"):
        if not any(kind in data[:_BEGINNING] for kind in _TEXTS):
            return ""
        data = re.sub(rb"\0{7,}", b"\n", data).replace(b"\0", b"")  # UCS-4: four bytes per character, padded
    if file.endswith(".pkl"):
        data = b"\n".join(re.findall(rb"[ -~]{6,}", data))
    return data.decode(errors="replace")


def _problem(place: str, kind: str, cell: int | None, otherwise: str) -> Problem:
    return Problem("secret", kind, cell, leak_text(place, kind, otherwise))
