"""Train a program as it stands: run it once from its top, and meet the job at the heads of its training loops."""

from __future__ import annotations

import os
from pathlib import Path

from torch import nn

from kernel_backend.artifacts.run import run
from kernel_backend.definition.script.definition import with_values
from kernel_backend.definition.script.modules import shipped_modules
from kernel_backend.definition.script.parts import PART
from kernel_backend.home import attempt_folder
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.definition.step_files import StepFiles
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.external_loop.leave import FINISHED, Leave
from kernel_backend.runner.external_loop.run_methods import RunMethods
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.external_loop.user_loop import LoopSettings
from kernel_backend.runner.forms.script.curves.curves import Curves
from kernel_backend.runner.forms.script.events import Events
from kernel_backend.runner.forms.script.heads import Heads
from kernel_backend.runner.forms.script.named_modules import NamedModules
from kernel_backend.runner.forms.script.own_ranks import one_process_group, wires_ranks
from kernel_backend.runner.forms.script.program import Program
from kernel_backend.runner.forms.script.split.calls import SplitCalls
from kernel_backend.snapshots.shipped import shipped_folders


class ScriptTraining:
    """A program with training loops of its own, in this rank."""

    def __init__(self, rank: RankContext) -> None:
        self._rank = rank
        self._training = ExternalTraining(rank)
        settings = LoopSettings(rank.config, rank.ranks.rank, rank.ranks.size, rank.device, rank.note)
        self._methods = RunMethods(self._training, settings, rank.functions.params)
        self.events = Events()
        heads = Heads(self._training, self.events, lambda: self._program.sites)
        loaded = rank.loaded
        assert loaded.cell is not None
        code, project = Path(rank.job.code), loaded.snapshot.project if loaded.snapshot else None
        folders = [code, *shipped_folders(code, project), Path(rank.job.cwd)]
        modules = shipped_modules(code, project)
        tree = with_values(loaded.cell, modules, rank.job.params, rank.config.epochs)
        self._program = Program(tree, Path(str(loaded.module.__file__)), folders, heads.hooks())
        self._curves: Curves | None = None
        if rank.ranks.rank == 0:
            trees = {"": loaded.cell, **modules}
            self._curves = Curves(self._training, rank.config, trees, self.events, heads.loops)
        self._modules = NamedModules(vars(self._program.module), heads.frames)
        self.events.on_iteration.append(self._modules.iteration)
        self._training.register(PART, self._modules)
        if rank.config.reproducible != "off":
            self._training.guarantee = self._program.presumed
        own_ranks = rank.ranks.size == 1 or wires_ranks([loaded.cell, *modules.values()])
        self._split = None if own_ranks else SplitCalls(rank.ranks, rank.device, rank.note)
        private = attempt_folder(Path(rank.job.home), rank.job.id) / f"rank-{rank.ranks.rank}.files"
        self._files = StepFiles(os.getcwd(), private, rank.ranks.rank, rank.note, rank.ranks.size, own_ranks)

    @property
    def step(self) -> int:
        """Return the number of steps taken."""
        return self._training.position.step

    def train(self) -> int:
        """Run the program, and commit a last checkpoint."""
        run.attach(self._methods)
        try:
            with RandomStates().aside():
                self._training.begin()
            if self._split is not None:
                self._split.install()
                self.events.on_step.append(self._split.end_step)
            with one_process_group(), self._files.throughout(self._program.builtins, self._rank.job.checkpoints):
                self._program.run()
            if self._curves is not None:
                self._curves.finish()
            self._training.finish()
        except Leave as leave:
            return leave.code
        return FINISHED

    def models(self, best: bool) -> nn.Module | dict[str, nn.Module]:
        """Return the modules that are variables of the program, by name."""
        return self._modules.found()

    def close(self) -> None:
        """Wait for the checkpoint being written, and stop threads and loader processes."""
        if self._split is not None:
            self._split.close()
        self._files.close()
        self.events.close()
        if self._curves is not None:
            self._curves.close()
        self._training.close()
        self._methods.loop.close()
