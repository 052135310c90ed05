"""Read CPU time and memory of the ranks' processes, and the energy that the node's processors have used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from kernel_backend.launch.utilisation.readings import Reading, Trees

POWERCAP = Path("/sys/class/powercap")


def trees(pids: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """Return the process ids of each running rank, by rank: its own first, then those of all its descendants.

    `pids` has the process id of each rank.
    """
    children: dict[int, list[int]] = {}
    alive: set[int] = set()
    for process in psutil.process_iter(["ppid", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            children.setdefault(process.info["ppid"], []).append(process.pid)
            alive.add(process.pid)
    return {rank: tuple(_descendants(pid, children)) for rank, pid in pids.items() if pid in alive}


def _descendants(pid: int, children: Mapping[int, list[int]]) -> Iterator[int]:
    yield pid
    for child in children.get(pid, ()):
        yield from _descendants(child, children)


class ProcessMeter:
    """Meter of the CPU time and the main memory that the ranks' processes use."""

    def read(self, trees: Trees) -> dict[int, Reading]:
        """Return a reading with the CPU time and memory of each rank's processes, by rank.

        `trees` has the process ids of each rank and its descendants.
        """
        return {rank: _sum(*pids) for rank, pids in trees.items()}


def _sum(own: int, *others: int) -> Reading:
    """Return a rank's CPU time and memory, summed over its own process `own` and its descendants `others`.

    CPU time of descendants that have ended is part of their parents' time, and so is included. Memory that a descendant
    shares with other processes is counted only once, in the rank's own process.
    """
    seconds, memory, found = 0.0, 0.0, False
    for pid in (own, *others):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            seconds += sum(process.cpu_times()[:4])  # user, system, and the same of ended children
            used = process.memory_info()
            memory += used.rss if pid == own else max(0, used.rss - used.shared)
            found = True
    return Reading(cpu_seconds=seconds, memory=memory) if found else Reading()


class PackageMeter:
    """Meter of the energy of the node's processors, by RAPL (hardware counters), which often only root may read."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        """Find the counters of all processors in `folder`."""
        self._counters = [_Counter(each) for each in sorted(folder.glob("*-rapl:*")) if _is_package(each)]

    def read(self, trees: Trees) -> dict[int, Reading]:
        """Return the same reading for each rank: energy of all processors, and CPU time of all processes of the node.

        From these the rank's share of the energy can be computed. Of `trees` (process ids by rank) only the ranks are
        used.
        """
        counted = [each.joules() for each in self._counters]
        known = [each for each in counted if each is not None]
        if not known or len(known) < len(counted):
            return dict.fromkeys(trees, Reading())
        times = psutil.cpu_times()
        busy = sum(times) - times.idle - times.iowait - times.guest - times.guest_nice  # guests are counted in user
        return dict.fromkeys(trees, Reading(package_joules=sum(known), busy_seconds=busy))


def _is_package(zone: Path) -> bool:
    """Return whether a RAPL zone (the folder of one counter) belongs to a whole processor.

    Other zones belong to a part of a processor, such as its cores, or to the whole machine.
    """
    try:
        return (zone / "name").read_text().startswith("package")
    except OSError:
        return False


class _Counter:
    """Energy counter of one processor.

    It continues to grow where the hardware's counter reaches its maximum and restarts at 0.
    """

    def __init__(self, zone: Path) -> None:
        self._zone, self._wraps, self._last = zone, 0.0, 0.0

    def joules(self) -> float | None:
        """Return the energy in joules that was used since a fixed time; only differences between calls have a meaning.

        None if the counter cannot be read.
        """
        try:
            now = int((self._zone / "energy_uj").read_text()) / 1e6
            if now < self._last:
                self._wraps += int((self._zone / "max_energy_range_uj").read_text()) / 1e6
        except (OSError, ValueError):
            return None
        self._last = now
        return self._wraps + now
