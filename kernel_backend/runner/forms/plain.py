"""Run a cell once as it is (`%%dlrun`), and store its values."""

from __future__ import annotations

import os
import threading

from torch import nn

from kernel_backend.artifacts.run import run
from kernel_backend.definition.plain import MARK, brought_back, listed
from kernel_backend.model.artifacts import LAST
from kernel_backend.model.launch.exit_codes import FINISHED, RELEASED
from kernel_backend.runner.cell_values import ValueWriter
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.external_loop.leave import Leave
from kernel_backend.runner.external_loop.run_methods import RunMethods
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.external_loop.user_loop import LoopSettings
from kernel_backend.runner.forked_children import children_end_here
from kernel_backend.runner.process_end import ending_normally, flush_output
from kernel_backend.snapshots.job_values import shown

_LOOK_S = 1.0  # interval between checks for a release of the slots


class PlainTraining:
    """Training that consists of running a cell once; its job has a single rank."""

    def __init__(self, rank: RankContext) -> None:
        self._rank = rank
        self._training = ExternalTraining(rank)
        settings = LoopSettings(
            rank.config, 0, 1, rank.device, rank.note, workers=rank.loader_workers, limit=rank.limit_guarantee
        )
        self._methods = RunMethods(self._training, settings, {})
        self._ended = threading.Event()

    @property
    def step(self) -> int:
        """Return the number of steps taken."""
        return self._training.position.step

    def train(self) -> int:
        """Run the cell, store its variables, commit a final checkpoint, and return the exit code."""
        run.attach(self._methods)
        self._training.begin()
        threading.Thread(target=self._beside, daemon=True).start()
        try:
            self._run()
            self._ended.set()
            self._training.finish()
        except Leave as leave:
            return leave.code
        finally:
            self._ended.set()
        return FINISHED

    def models(self, best: bool) -> nn.Module | dict[str, nn.Module]:
        """Return the modules that the cell registered with `run.restore`, by name; `best` is ignored."""
        return {name: each for name, each in self._methods.registered.items() if isinstance(each, nn.Module)}

    def close(self) -> None:
        """Stop threads and loader workers."""
        self._ended.set()
        self._training.close()
        self._methods.loop.close()

    def _run(self) -> None:
        loaded = self._rank.loaded
        assert loaded.cell is not None
        held = vars(loaded.module)
        values = ValueWriter(self._rank, brought_back(loaded.cell, 1), only=bool(listed(loaded.cell)))
        values.begin(held)
        with children_end_here(), ending_normally():
            exec(compile(loaded.cell, str(loaded.module.__file__), "exec", dont_inherit=True), held)
        for name in held[MARK]:
            if name not in held:
                self._rank.note(f"--back {name}: the cell has no variable of this name", "warning")
        last = held.get(LAST)
        if last is not None:
            print(f"result: {shown(last)}", flush=True)
        values.save(held, last)

    def _beside(self) -> None:
        """Write heartbeats while the cell runs, in a thread; end the process if the job's slots are reclaimed.

        If the cell has registered state for checkpoints, the process goes on until that state can be saved.
        """
        while not self._ended.wait(_LOOK_S):
            self._rank.progress.tick("step", self.step)
            if self._rank.instructions.release and not self._methods.registered:
                flush_output()
                os._exit(RELEASED)
