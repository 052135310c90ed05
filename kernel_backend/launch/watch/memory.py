"""Detect whether the kernel has killed processes of this node for lack of memory while ranks ran."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from kernel_backend.model.sizes import size

_KILLS = "oom_kill"  # the line with the number of processes that were killed for lack of memory


class _Group(NamedTuple):
    """Files of the control group (cgroup) of this process: its counter of kills, and where its limits are."""

    counter: Path
    limits: tuple[tuple[Path, str], ...]  # file, and the name of the value in it; "": the file has only the value


class MemoryWatch:
    """Detector of kills for lack of memory, by the kernel's counter of kills, which is read when the ranks start.

    The kernel counts the killed processes for each control group of processes, such as a container or a step of Slurm,
    and for the machine. The source is the kernel's documentation, `admin-guide/cgroup-v2.rst` and
    `cgroup-v1/memory.rst`.
    """

    def __init__(self, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> None:
        """Read the counter now; without one, as on macOS, no kill will be detected."""
        self._group = next(_groups(proc, groups), _Group(proc / "vmstat", ()))
        self._before = _value(self._group.counter, _KILLS)

    def lack(self) -> str:
        """Return how much memory there is if the kernel has killed a process for lack of it since the start; else "".

        An example is `the limit here is 4.0 GB`.

        Examples
        --------
        >>> MemoryWatch().lack()
        ''
        """
        kills = _value(self._group.counter, _KILLS)
        if self._before is None or kills is None or kills <= self._before:
            return ""
        whole = psutil.virtual_memory().total
        limits = [found for path, name in self._group.limits if (found := _value(path, name)) is not None]
        limit = min(limits, default=whole)
        return f"the limit here is {size(limit)}" if limit < whole else f"this node has {size(whole)}"


def _groups(proc: Path, groups: Path) -> Iterator[_Group]:
    """Yield the control groups (cgroups) of this process that have a counter of kills; the caller uses the first.

    Groups of cgroup version 1 come first: where version 1 manages memory, only these count kills.
    """
    with contextlib.suppress(OSError, ValueError):
        lines = [line.split(":", 2) for line in (proc / "self" / "cgroup").read_text().splitlines()]
        for path in (path for _, controllers, path in lines if "memory" in controllers.split(",")):
            for folder in (groups / "memory" / path.lstrip("/"), groups / "memory"):  # the latter in a container
                if _value(folder / "memory.oom_control", _KILLS) is not None:
                    limit = (folder / "memory.stat", "hierarchical_memory_limit")
                    yield _Group(folder / "memory.oom_control", (limit,))
        for path in (path for number, controllers, path in lines if (number, controllers) == ("0", "")):
            folder = groups / path.lstrip("/")
            if _value(folder / "memory.events", _KILLS) is not None:
                above = [each for each in (folder, *folder.parents) if each.is_relative_to(groups)]
                yield _Group(folder / "memory.events", tuple((each / "memory.max", "") for each in above))


def _value(path: Path, name: str) -> int | None:
    """Return the number after `name` in a line of a file; for a `name` of "", the only number in the file.

    None if there is none.
    """
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            key, _, value = line.rpartition(" ")
            if key == name and value.isdecimal():
                return int(value)
    return None
