"""Record steps of a running training by torch.profiler on request; rank 0 stores the traces of all ranks as artifacts.

Recording begins at the next step of each rank, after one more step in which the profiler warms up. It draws no random
numbers and changes no result. Traces are written by a thread while the training goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from kernel_backend.model.launch.progress import Phase
from kernel_backend.model.launch.trace import (
    OPERATIONS,
    SHOWN,
    RankTrace,
    Trace,
    TracedOperation,
    artifact_of,
    result_file,
    trace_file,
)
from kernel_backend.model.reports import Traced
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.timing.clock import CLOCK

LOOK_S = 0.2
LAST_S = 60.0  # after the end of the training, for traces that are being written

Keep = Callable[[str, Path], None]


class Recording:
    """Profiler that records a given number of steps of this rank, in its training's thread."""

    def __init__(self, trace: Trace, device: torch.device) -> None:
        """Start the profiler; it warms up in the step that begins now."""
        self.trace = trace
        self.first = self.last = 0
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        plan = schedule(wait=0, warmup=1, active=trace.steps, repeat=1)
        self.profile = profile(activities=activities, schedule=plan)
        self.profile.start()

    def step(self, number: int) -> bool:
        """Report to the profiler that step `number` begins; return True once all requested steps are recorded."""
        self.profile.step()
        self.first = self.first or number
        self.last = number - 1
        return self.last - self.first + 1 >= self.trace.steps

    def end(self) -> None:
        """Stop the profiler."""
        self.profile.stop()

    def result(self, rank: int) -> RankTrace:
        """Return the numbers of the first and last recorded step, and the operations that took longest.

        `rank` is the number of this rank.
        """
        rows = [
            TracedOperation(
                name=each.key,
                calls=each.count,
                cpu_ms=round(each.self_cpu_time_total / 1000, 3),
                device_ms=round(each.self_device_time_total / 1000, 3),
            )
            for each in self.profile.key_averages()
            if not each.key.startswith("ProfilerStep")
        ]
        rows.sort(key=lambda each: -max(each.cpu_ms, each.device_ms))
        return RankTrace(rank=rank, first=self.first, last=self.last, operations=tuple(rows[:SHOWN]))


class Tracer:
    """Recorder of profiler traces in this rank; an instruction of the launcher starts each recording."""

    def __init__(
        self,
        folder: Path,
        experiment: int,
        instructions: Instructions,
        spool: Spool,
        keep: Keep | None,
        rank: int,
        device: torch.device,
    ) -> None:
        """Set up the tracer of rank `rank`, whose traces are written to `folder`.

        `instructions` receives the requests of the launcher. `keep` stores a file as an artifact on rank 0, None on
        other ranks. `experiment` is the experiment's number, for notes to the user.
        """
        self._folder, self._experiment, self._instructions, self._spool = folder, experiment, instructions, spool
        self._keep, self._rank, self._device = keep, rank, device
        self._thread = threading.get_ident()
        self._recording: Recording | None = None
        self._begun = ""  # id of the newest recording
        self._threads: list[threading.Thread] = []
        self._over: float | None = None  # when the training ended

    def phase(self, phase: Phase, step: int) -> None:
        """Begin, continue or end a recording if a heartbeat says that a step begins; ignore other heartbeats."""
        if phase not in ("step", "first step") or threading.get_ident() != self._thread:
            return
        trace = self._instructions.trace
        if self._recording is not None:
            with CLOCK.part("stall"):
                self._go_on(self._recording, step)
        elif trace is not None and trace.id != self._begun:
            with CLOCK.part("stall"):
                self._begin(trace)

    def close(self) -> None:
        """End the recording at the end of the training: write the steps recorded so far.

        A request that came after the last step is answered with an error.
        """
        trace = self._instructions.trace
        if self._recording is not None:
            self._end(self._recording)
        elif trace is not None and trace.id != self._begun:
            self._begun = trace.id
            self._collect_beside(trace)
            self._write(trace, RankTrace(rank=self._rank, problem="the training ended before a further step"))
        self._over = time.monotonic()
        for thread in self._threads:
            thread.join(LAST_S)

    def _begin(self, trace: Trace) -> None:
        self._begun = trace.id
        self._collect_beside(trace)
        if self._rank not in trace.ranks:
            return
        try:
            self._recording = Recording(trace, self._device)
        except RuntimeError as error:  # another profiler, of the user's, runs
            self._write(trace, RankTrace(rank=self._rank, problem=str(error)[:300]))

    def _go_on(self, recording: Recording, step: int) -> None:
        if recording.step(step):
            self._end(recording)

    def _end(self, recording: Recording) -> None:
        self._recording = None
        recording.end()
        self._start(self._export, recording)

    def _export(self, recording: Recording) -> None:
        trace = recording.trace
        try:
            recording.profile.export_chrome_trace(str(self._folder / trace_file(trace.id, self._rank)))
            result = recording.result(self._rank)
        except Exception as error:  # such as a full disk: the training goes on
            result = RankTrace(rank=self._rank, problem=f"{type(error).__name__}: {error}"[:300])
        self._write(trace, result)

    def _write(self, trace: Trace, result: RankTrace) -> None:
        path = self._folder / result_file(trace.id, self._rank)
        beside = path.with_suffix(".new")
        beside.write_text(result.model_dump_json())
        os.replace(beside, path)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="trace", daemon=True)
        thread.start()
        self._threads.append(thread)

    # On rank 0

    def _collect_beside(self, trace: Trace) -> None:
        if self._keep is not None:
            self._start(self._collect, trace, self._keep)

    def _collect(self, trace: Trace, keep: Keep) -> None:
        """Wait for the traces of all ranks, store them as artifacts, and report that the recording has ended.

        `_collect` runs in a thread on rank 0. It gives up some time after the end of the training.
        """
        results = {rank: self._result(trace, rank) for rank in trace.ranks}
        while None in results.values() and not self._too_late():
            time.sleep(LOOK_S)
            results = {rank: found or self._result(trace, rank) for rank, found in results.items()}
        missing = RankTrace(rank=0, problem="nothing was written: its node may have another disk")
        found = [result or missing.model_copy(update={"rank": rank}) for rank, result in results.items()]
        try:
            self._store(trace, [each for each in found if not each.problem], keep)
            text = traced_text(self._experiment, found)
        except Exception as error:  # such as a full disk
            text = f"the trace was not kept: {error}"
        self._spool.say(Traced(id=trace.id, text=text))

    def _too_late(self) -> bool:
        return self._over is not None and time.monotonic() - self._over > LAST_S / 2

    def _result(self, trace: Trace, rank: int) -> RankTrace | None:
        try:
            return RankTrace.model_validate_json((self._folder / result_file(trace.id, rank)).read_bytes())
        except FileNotFoundError:
            return None

    def _store(self, trace: Trace, results: list[RankTrace], keep: Keep) -> None:
        for each in results:
            path = self._folder / trace_file(trace.id, each.rank)
            keep(artifact_of(each.rank), path)
            path.unlink()
        if results:
            table = self._folder / f"trace-{trace.id}.json"
            table.write_text("[" + ",".join(each.model_dump_json() for each in results) + "]")
            keep(OPERATIONS, table)
            table.unlink()


def traced_text(experiment: int, results: list[RankTrace]) -> str:
    """Return the note to the user about a recording: which steps and ranks were traced, and why a rank was not."""
    good = [each for each in results if not each.problem]
    parts = [f"no trace of rank {each.rank}: {each.problem}" for each in results if each.problem]
    if good:
        steps = f"steps {min(each.first for each in good)} to {max(each.last for each in good)}"
        ranks = f"rank{'s' if len(good) > 1 else ''} {', '.join(str(each.rank) for each in good)}"
        shows = f"daylight profile {experiment} --trace shows it"
        parts.insert(0, f"traced {steps} of {ranks}: {shows}")
    return "; ".join(parts)
