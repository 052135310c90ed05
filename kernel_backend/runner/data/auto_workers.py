"""Tune the number of loader processes during a training: measure steps with a setting, then choose the next one."""

from __future__ import annotations

import io
import math
import socket
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from kernel_backend.model.facts import LoaderSetting
from kernel_backend.runner.data.loader_workers import LoadTimes
from kernel_backend.runner.data.source import Source
from kernel_backend.runner.data.tuning import Choice, Limits, Measured, choose, told
from kernel_backend.runner.determinism.reachability import held_by
from kernel_backend.runner.timing.clock import CLOCK, StepClock

LEAST_STEPS, LEAST_S = 10, 1.0  # of a window
PATIENCE_S = 60.0  # for a batch of processes that were added
USUAL_BYTES = 200 * 2**20  # own memory of a process, as long as none runs that could be measured
_CGROUP = Path("/sys/fs/cgroup")
_OF_FILES = (io.RawIOBase, io.BufferedIOBase, io.TextIOBase, socket.socket, sqlite3.Connection)
_IN_MEMORY = (io.BytesIO, io.StringIO)
_HANDLES = ("h5py", "lmdb", "netCDF4", "tables", "tarfile", "zipfile")  # packages whose objects hold files open


class AutoWorkers(NamedTuple):
    """Settings for tuning this rank's loader processes (`--loader-workers auto`): limits, and functions for reports."""

    begin: LoaderSetting | None  # chosen by an earlier attempt; None: what suits the data
    cores: int  # of this rank's slot
    ranks: int  # on this node, which share its memory
    patience: float  # seconds to wait for a batch of added processes before they are given up
    note: Callable[[str], None]
    chosen: Callable[[LoaderSetting], None]  # records a setting, with which later attempts begin


class WorkerTuner:
    """Tuner that measures the steps of one loader, and decides when and how its number of processes changes."""

    def __init__(self, auto: AutoWorkers, source: Source, usual: LoaderSetting, clock: StepClock = CLOCK) -> None:
        """Set up the tuner for the loader of `source`.

        `usual` is the setting that the loader would have without tuning. `clock` measures the training steps.
        """
        self._auto, self._source, self._usual, self._clock = auto, source, usual, clock
        self._tried: list[Measured] = []
        self._over = False
        self._begun: tuple[float, ...] | None = None  # sums at the begin of the window
        self._changed(auto.begin or usual)

    def look(self, setting: LoaderSetting, times: LoadTimes, workers: Sequence[int]) -> LoaderSetting | None:
        """Record that a training step was done with `setting`, and decide whether the loader must change its setting.

        Return the new setting, or None to keep the present one. `times` sums the loading times so far; `workers` are
        the process IDs of the loader workers.
        """
        self._steps += 1
        if self._over or self._steps < self._due:
            return None
        passed = self._clock.passed()
        if passed is None or self._begun is None:
            self._begin(setting, times, passed)
            return None
        measured = self._measured(setting, times, passed)
        if measured is None:
            return None
        self._tried.append(measured)
        choice = self._safe(choose(self._tried, Limits(self._auto.cores, self._fitting(workers))))
        if choice.settled:
            self._settle(choice)
        self._changed(choice.setting)
        return choice.setting if choice.setting != setting else None

    def give_up(self, setting: LoaderSetting, error: Exception) -> None:
        """Record that loading with `setting` failed, and notify the user; the tuner then proposes no further change."""
        self._over = True
        text = f"{type(error).__name__}: {error}"[:300]
        self._auto.note(
            f"tuned: back to {self._usual.workers} loader workers, as with {setting.workers} there was {text}"
        )

    def _changed(self, setting: LoaderSetting) -> None:
        """Start to measure `setting`, once the batches that were loaded with the previous setting are used up."""
        self._steps, self._begun = 0, None
        self._due = 2 + setting.workers * setting.prefetch

    def _begin(self, setting: LoaderSetting, times: LoadTimes, passed: tuple[float, float] | None) -> None:
        self._steps, self._due = 0, 1
        if passed is not None:
            self._begun = (*passed, times.batches, times.seconds, times.cpu)
            # Workers deliver in turns: the window has several of them.
            self._due = max(LEAST_STEPS, 3 * setting.workers)

    def _measured(self, setting: LoaderSetting, times: LoadTimes, passed: tuple[float, float]) -> Measured | None:
        """Return the mean times of the steps measured with `setting`; None if more steps must be measured first.

        `times` and `passed` are the sums of loading and step times so far, in seconds.
        """
        assert self._begun is not None
        ended = (*passed, times.batches, times.seconds, times.cpu)
        step, waited, batches, load, cpu = (b - a for a, b in zip(self._begun, ended, strict=True))
        if step < LEAST_S or not batches:
            self._due = self._steps + LEAST_STEPS
            return None
        return Measured(setting, step / self._steps, waited / self._steps, load / batches, cpu / batches)

    def _safe(self, choice: Choice) -> Choice:
        """Return `choice`, or the present setting if `choice` adds processes although the data holds an open file.

        Several processes would share the position in the open file.
        """
        now = self._tried[-1].setting
        if choice.settled or self._usual.workers > 1 or choice.setting.workers <= max(1, now.workers):
            return choice
        held = open_file_in(self._source)
        return choice if held is None else Choice(now, True, f"{held}, which several processes would share")

    def _settle(self, choice: Choice) -> None:
        self._over = True
        if len(self._tried) == 1 and not choice.reason:  # it was good from the beginning
            return
        self._auto.note(told(self._tried, choice))
        if choice.setting != self._usual:
            self._auto.chosen(choice.setting)

    def _fitting(self, workers: Sequence[int]) -> int:
        """Return how many loader processes may be added within half of this rank's share of the free memory.

        `workers` are the process IDs of the present ones, from which the memory of one process is measured.
        """
        own = max((_own_bytes(each) for each in workers), default=USUAL_BYTES)
        return int(free_memory() / 2 / self._auto.ranks / max(own, 2**20))


def open_file_in(source: Source) -> str | None:
    """Return a description of an object in dataset or collate function that holds a file open; None if none does."""
    for way, obj in held_by({source.role: source.dataset, "collate": source.collate}):
        kind = type(obj)
        package = str(getattr(kind, "__module__", "")).partition(".")[0]
        if (isinstance(obj, _OF_FILES) and not isinstance(obj, _IN_MEMORY)) or package in _HANDLES:
            return f"{way} is an open {kind.__name__}"
    return None


def free_memory() -> float:
    """Return the bytes of main memory that this rank's processes may still use, limited by machine and container."""
    free = float(psutil.virtual_memory().available)
    try:
        own = Path("/proc/self/cgroup").read_text().partition("::")[2].strip().lstrip("/")
    except OSError:  # no Linux
        return free
    folder = _CGROUP / own
    # A limit may be that of a group above: Slurm sets it on the job, and its processes are in groups below.
    return max(0.0, min([free, *map(_free_in_group, (folder, *folder.parents)[: len(Path(own).parts) + 1])]))


def _free_in_group(folder: Path) -> float:
    """Return the bytes that the cgroup at `folder` may still use; infinity if it has no limit.

    Unused file pages (the page cache) count as free.
    """
    try:
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return math.inf if limit == "max" else float(limit) - float(used) + float(stat.get("inactive_file", 0))
    except (OSError, ValueError):  # another version of cgroups, or none
        return math.inf


def _own_bytes(process: int) -> float:
    """Return the bytes of memory that process ID `process` shares with no other process."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return USUAL_BYTES
    return sum(1024.0 * int(line.split()[1]) for line in lines if line.startswith("Private_"))
