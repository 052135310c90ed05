"""What goes into a snapshot without being asked, since results may depend on it; secrets stay behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_ext.capture.secrets import find_secrets
from kernel_backend.snapshots.environment import beside

_BEGINNING = 8192  # bytes that tell a text from anything else


@dataclass(frozen=True)
class Surroundings:
    """Members of a snapshot, and sentences about those that were left out of it."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def surroundings(folder: Path, known: Sequence[str]) -> Surroundings:
    """Sources of editable distributions, and how the files of `folder` differ from git's commit.

    One that holds what looks like a secret, or one of the `known` ones, is left out: nobody asked for it to travel.
    """
    files, warnings = {}, []
    for name, data in beside(folder).items():
        found = find_secrets(data.decode(errors="replace"), known) if b"\0" not in data[:_BEGINNING] else []
        if found:
            line, kind = found[0]
            warnings.append(f"{name} is not kept with the snapshot: line {line} holds what looks like {kind}")
        else:
            files[name] = data
    return Surroundings(files, tuple(warnings))
