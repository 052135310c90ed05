"""Train an unmodified program: run it from its top, count steps, and save checkpoints between iterations of loops."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from kernel_backend.artifacts.run import run
from kernel_backend.definition.command_line import unmarked
from kernel_backend.definition.script.defined import set_by_cell
from kernel_backend.definition.script.definition import with_values
from kernel_backend.definition.script.loops import TrainingLoop, summary
from kernel_backend.definition.script.modules import shipped_modules, without_program
from kernel_backend.definition.script.own_ranks import wired
from kernel_backend.definition.script.parts import PART, PROGRAM
from kernel_backend.definition.script.rewrite import CELL, marked
from kernel_backend.definition.script.signs import binding, presumed
from kernel_backend.errors import InvalidDefinition
from kernel_backend.home import attempt_folder, program_folder
from kernel_backend.model.launch.exit_codes import FINISHED, RELEASED
from kernel_backend.model.record import Value
from kernel_backend.model.reports import Fact
from kernel_backend.model.values import listed
from kernel_backend.runner.cell_values import ValueWriter
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.definition.step_files import StepFiles
from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.determinism.digests import weights
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.external_loop.leave import Leave
from kernel_backend.runner.external_loop.run_methods import RunMethods
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.external_loop.user_loop import LoopSettings
from kernel_backend.runner.forms.script.curves.curves import Curves
from kernel_backend.runner.forms.script.curves.own_epochs import OwnEpochs
from kernel_backend.runner.forms.script.events import Events
from kernel_backend.runner.forms.script.files import ProgramFiles
from kernel_backend.runner.forms.script.heads import Active, Extended, Heads, Station
from kernel_backend.runner.forms.script.iterators import track_libraries
from kernel_backend.runner.forms.script.named_modules import NamedModules
from kernel_backend.runner.forms.script.output import Output
from kernel_backend.runner.forms.script.own_ranks import one_process_group
from kernel_backend.runner.forms.script.program import Program
from kernel_backend.runner.forms.script.rehearsal.recorder import Recorder
from kernel_backend.runner.forms.script.rehearsal.rehearsal import Rehearsal
from kernel_backend.runner.forms.script.rehearsal.stored import StoredVerdict
from kernel_backend.runner.forms.script.rehearsal.verdict import guarantee, refusal
from kernel_backend.runner.forms.script.saved import ProgramPart
from kernel_backend.runner.forms.script.snapshots import Snapshots
from kernel_backend.runner.forms.script.split.calls import SplitCalls
from kernel_backend.runner.forms.script.start import start_of
from kernel_backend.runner.forms.script.state.tombstones import BeginAnew, NotSaved, unreadable
from kernel_backend.runner.forms.script.watchers import Watchers
from kernel_backend.runner.past import replay
from kernel_backend.runner.past.answers import Answers
from kernel_backend.runner.past.in_place import InPlace
from kernel_backend.runner.past.record import Past
from kernel_backend.runner.past.undo import looks_for, put_back

_TORCHS_SEED = 67280421310721  # torch's default seed


class ScriptTraining:
    """Training, in this rank, of a program that has training loops of its own."""

    def __init__(self, rank: RankContext) -> None:
        self._rank = rank
        loaded = rank.loaded
        assert loaded.cell is not None
        project, command = loaded.snapshot.project if loaded.snapshot else None, loaded.definition.command
        modules = without_program(shipped_modules(Path(rank.job.code), project), command)
        path = Path(str(loaded.module.__file__))
        written = with_values(loaded.cell, modules, rank.job.values, rank.config.epochs)
        cell = loaded.snapshot.roles_from if loaded.snapshot else 1
        self._values = ValueWriter(rank, set_by_cell(written.tree, cell))
        counts = not marked(written.tree, cell)  # before it is compiled
        start = start_of(rank.job, path, project, command, written.arguments)
        self._follows = rank.config.search is None  # a search counts the epochs of all trainings of a program
        self._program = Program(written.tree, start, unmarked(path.read_text(encoding="utf-8")), self._follows)
        signs = binding(self._program.signs, rank.config.reproducible != "off")
        folder = program_folder(Path(rank.job.home), rank.job.experiment, rank.job.trial)
        stored = StoredVerdict(folder / "verdict.json", rank.job.uid)
        self._training = ExternalTraining(
            rank,
            "script",
            lambda checkpoint: refusal(stored.over(checkpoint.state["training"].get("form", {})), signs),
        )
        self._training.ready = self._prepare
        self._training.counts = counts
        number, size = rank.ranks.rank, rank.ranks.size
        settings = LoopSettings(
            rank.config, number, size, rank.device, rank.note, workers=rank.loader_workers, limit=rank.limit_guarantee
        )
        self._methods = RunMethods(self._training, settings, rank.functions.params)
        self._watchers = Watchers(self.note)
        self.events = Events(self._watchers)
        if rank.config.reproducible != "off":
            self._training.guarantee = presumed(signs)
        elif signs:
            lost = "epoch" if signs[0].rung == "epoch" else "run"
            self._training.guarantee += f"; a kill costs the whole {lost}: {signs[0].text}"
        every = rank.config.checkpoint_every
        self._heads = Heads(
            self,
            lambda: self._program.sites,
            self._program.deepest,
            always=every is not None and every.steps is not None,
            records=rank.ranks.rank == 0,
        )
        self._heads.snapshots = Snapshots(self._program.builtins, self._program.module, self._program.codes)
        self._epochs: weakref.ref[Active] | None = None  # the loop of epochs in which the newest step was taken
        self._rounds = 0  # trainings that have ended in loops over folds, seeds or hyperparameters
        self._own_epochs = OwnEpochs(self._training, lambda: self._heads.ended + self._rounds, self._begin_curves)
        if self._follows:
            self.events.on_backward.append(self._own_epochs.backward)
        self._curves: Curves | None = None
        if rank.ranks.rank == 0:
            trees = {"": loaded.cell, **modules}
            self._curves = self._watchers.call(
                Curves, self._training, rank.config, trees, self.events, self._heads.loops, self._heads.length
            )
        self._modules = NamedModules(vars(self._program.module), self._heads.frames)
        self.events.on_iteration.append(self._modules.iteration)
        self._restore(PART, self._modules)
        own_ranks = rank.ranks.size == 1 or wired({"": loaded.cell, **modules}) is not None
        self._split = None if own_ranks else SplitCalls(rank.ranks, rank.device, rank.note)
        private = attempt_folder(Path(rank.job.home), rank.job.id) / f"rank-{rank.ranks.rank}.files"
        self._private = StepFiles(os.getcwd(), private, rank.ranks.rank, rank.note, rank.ranks.size, own_ranks)
        own = (rank.job.home, rank.job.checkpoints, rank.job.code)
        overlays = replay.entered()
        self._why_today = ""  # why a restart would see today's files, and not those of the start
        self.past = replay.past_of(rank.job, rank.progress.folder) if rank.ranks.rank == 0 else None
        self.files = ProgramFiles(os.getcwd(), folder / "files.json", own, rank.ranks.rank == 0, overlays)
        self._in_place = None if self.past is None else InPlace(self.past, self.files.followed)
        # Ranks that a program connects itself have different states, of which rank 0's is only one.
        self.saves = self._split is not None or rank.ranks.size == 1
        if not self.saves:
            self._training.guarantee = guarantee("anew", "the program wires its ranks itself")
        self._answers = Answers(self._program.builtins)
        self._part = ProgramPart(self._modules)
        self._restore(PROGRAM, self._part)
        _refuse_other_values(self._training.resumed_params, rank.job.params)
        self._end: tuple[list[Station], str] = ([], "")  # the stations where the loop ended, and the log there
        self._outermost = False  # the stations to save are at the start of an iteration of an outermost loop
        self.recorder = Recorder(self.events, self._program)
        self.rehearsal = Rehearsal(
            rank,
            self._training,
            self.recorder,
            signs,
            self._program.deepest > 0,
            self.files.unobserved,
            stored,
        )
        self.events.on_step.append(self.rehearsal.step)
        self._training.form_state = self._form_state

    def _form_state(self) -> dict[str, Any]:
        own = {"outermost": self._outermost, "epochs": self._rank.config.epochs, "rounds": self._rounds}
        return {**self.rehearsal.state(), **own, "values": self._values.state()}

    @property
    def step(self) -> int:
        """Return the number of steps taken."""
        return self._training.position.step

    @property
    def resumed_from(self) -> str | None:
        """Return the ID of the checkpoint that this attempt goes on from; None if it begins at the start."""
        return self._training.resumed_from

    def train(self) -> int:
        """Run the program, commit a final checkpoint, and return the exit code."""
        run.attach(self._methods)
        untrack = track_libraries()
        self._output = Output(self.events.output)
        try:
            self._training.begin()
            self._begin()
            if self._split is not None:
                self._split.install()
                self._training.watch_calls_again()
            with (
                one_process_group(),
                self.files.throughout(self._program.builtins),
                self._private.throughout(self._program.builtins, self._rank.job.checkpoints),
                self._answers.throughout(),
            ):
                if runs := not self._training.position.over:
                    self._program.run({**self._heads.hooks(), CELL: self.reached})
            if not self.step:
                self.note(f"no step was taken: the loop ({summary(self._program.loops)}) never came to backward()")
            if self._curves is not None:
                self._watchers.call(self._curves.finish)
            self._part.stations, self._part.text = self._end
            self._outermost = True
            self._training.retain(None)  # nothing is rehearsed any more
            if runs:  # otherwise an earlier attempt has run the program, and stored them
                with self._program.as_main():
                    self._values.save(vars(self._program.module))
            self._training.finish()
        except Leave as leave:
            return leave.code
        except (NotSaved, BeginAnew) as error:
            raise self._left(error) from error.__cause__
        finally:
            untrack()
            self._output.close()
        return FINISHED

    def _left(self, error: NotSaved | BeginAnew) -> NotSaved:
        """Set aside the checkpoints from which the next attempt could not go on either, and return the error to raise.

        The next attempt begins with an older checkpoint, or from the top.
        """
        source = self._training.resumed_from
        if source is not None and self._rank.ranks.rank == 0:
            self._training.set_aside_checkpoints(source if isinstance(error, BeginAnew) and error.only_this else None)
        return error if isinstance(error, NotSaved) else NotSaved(f"checkpoint {source}: {error}")

    def _restore(self, name: str, part: NamedModules | ProgramPart) -> None:
        try:
            self._training.register(name, part)
        except Exception as error:
            if self._training.resumed_from is None:
                raise
            raise self._left(unreadable(error)) from error

    def models(self, best: bool) -> nn.Module | dict[str, nn.Module]:
        """Return the modules that the program's variables hold, by name; `best` is ignored."""
        return self._modules.found()

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and stop threads and loader processes."""
        self._watchers.call(self.rehearsal.close)
        if self._split is not None:
            self._split.close()
        self._private.close()
        self.events.close()
        if self._curves is not None:
            self._watchers.call(self._curves.close)
        self._training.close()
        self._methods.loop.close()

    def _begin(self) -> None:
        """Prepare to resume from the checkpoint; without one, set the random generators for a run from the top.

        Torch's generator gets its usual initial seed, as in a plain Python process.
        """
        if self._part.stations:
            self._rounds = self._training.position.form.get("rounds", 0)
            self._values.restore(self._training.position.form.get("values"))
            RandomStates().load_state_dict(self._part.first)
            self._heads.replay(self._part.stations, self._extended())
            self._answers.replay(self._part.answers)
            self.files.replay()
            self._output.muted = self.events.muted = True
            return
        self.files.end_replay()
        if not self._training.position.over:
            if self._training.resumed_from is not None:
                self.note("the program begins anew: the checkpoint has no place in its loop from which it could go on")
            self._training.restart()
            self._record()
            if self._rank.ranks.size > 1:
                self._rank.ranks.broadcast_object(None)  # no rank runs the program before its files are as they were
        seeds.reseed(self._rank.config.seed)
        torch.manual_seed(_TORCHS_SEED)
        self._part.first, self._part.answers = RandomStates().state_dict(), self._answers.given

    def _record(self) -> None:
        """Record the files as the program begins, which a restart shall see; find out whether the kernel allows it."""
        if self.past is None or not self.saves:
            return
        self._watchers.call(ScriptTraining._put_files_back, self, self.past)
        try:
            self.past.begin()
            self.files.past = self.past
            self._why_today = replay.overlays_of(self._rank.job, self.past, 0).why_not()
        except Exception as error:  # a restart sees today's files then, and the training goes on
            self._why_today = f"its files were not recorded: {type(error).__name__}: {error}"
        if self._why_today:
            self._watchers.call(self.rehearsal.forbid, self._why_today)

    def _put_files_back(self, past: Past) -> None:
        """Undo what an earlier attempt has done to the files, as this one does it again; tell what cannot be undone."""
        job, in_search = self._rank.job, self._rank.config.search is not None  # whose trials share files
        if job.attempt == 1 or in_search or not past.recorded:
            return
        if found := looks_for(past):
            self.note(f"the program's files stay as they are, as it looks for {found} itself")
        elif left := put_back(past):
            named = listed(left, 3)
            self.note(f"the program begins anew, but finds {named} as the last attempt left it, not as at its start")

    def _extended(self) -> Extended | None:
        """Return how the number of epochs has changed since the checkpoint was saved; None if it has not."""
        now = self._rank.config.epochs
        before = self._training.position.form.get("epochs", now)
        return None if before == now else Extended(self._rank.loaded.definition.epochs_name, before, now)

    def reached(self) -> None:
        """Count validations and epochs from here on: the program has come from earlier cells to the submitted one."""
        if not self.events.muted:
            self._watchers.call(self._own_epochs.begin)
        self._training.counts = True
        self._watchers.call(ValueWriter.begin, self._values, vars(self._program.module))

    def _begin_curves(self) -> None:
        if self._curves is not None:
            self._watchers.call(self._curves.begin_training)

    # Called by Heads

    def ended(self, stations: list[Station]) -> None:
        """Keep the program's state at the end of its outermost loop, so that it can be continued for more epochs later.

        `stations` are the positions in the loops at that moment, outermost first.
        """
        if not self._rank.loaded.definition.epochs_fixed:
            self._end = (stations, self._output.text)

    def begun(self) -> None:
        """Report the digests of the initial weights; called when the first training loop begins."""
        self._answers.end()
        if self._rank.ranks.rank == 0:
            self._watchers.call(ScriptTraining._say_weights, self)
            if self.past is not None:
                self.past.in_setup = False
            if self._why_today and self.past is not None and (acts := self.past.acts()):
                self.rehearsal.limit(replay.limit(acts, self._why_today))
            self._look(InPlace.begin)

    def _look(self, find: Callable[[InPlace], list[str]]) -> None:
        """Say which files a restart would not put back to what they were, if `find` finds new ones."""
        if self._in_place is not None:
            for limit in self._watchers.call(find, self._in_place) or ():
                self.rehearsal.limit(limit)

    def _say_weights(self) -> None:
        found = weights(nn.Module(), self._modules.found())
        self._rank.spool.say(Fact(name="weights", value=found.to_json()))

    def iterated(self, loop: TrainingLoop, frame: FrameType, epoch: bool) -> None:
        """Count what an iteration of a loop completes: a step, an `epoch`, or a training of a loop over folds.

        An iteration without a backward pass or an optimizer step is no step. Loops of earlier cells have no epochs.
        """
        training, events = self._training, self.events
        events.iteration(loop, frame)
        if self.past is not None and (self.past.databases or self.past.later or self.past.gone or self.past.rewritten):
            self._look(InPlace.written)
        if epoch and not training.counts:
            training.position.origin, training.position.fraction = training.position.origin - self._follows, 0.0
        epoch = epoch and training.counts
        if events.updates or events.backwards:
            self._watchers.call(ScriptTraining._separate_losses, self)
            training.begin_step()
            training.abandon_step() if epoch else training.end_step()
            events.step(training.position.step)
            if self._split is not None:
                self._split.end_step(training.position.step)
        if epoch:  # after the last iteration only the end of the program is expected
            training.end_epoch(last=training.position.epoch + 1 >= training.rank.config.epochs)
        self._rounds += loop.rounds

    def _separate_losses(self) -> None:
        """Tell the spool if this step is the first of another optimizer or loop of epochs: of a fold, or a phase."""
        around = self._heads.active[-2:][0]
        before, self._epochs = self._epochs, weakref.ref(around)  # weak, as it has the frame of a user's function
        if self.events.renewed or (before is not None and before() is not around):
            self._rank.spool.begin_losses(self.step)

    def resumed(self, saved: Mapping[str, Any], tombstones: list[str]) -> None:
        """Continue the training: the restarted program has reached the point at which its checkpoint was saved."""
        self._answers.end()
        if self._split is not None and "split" in saved:
            self._split.load_state_dict(saved["split"])
        self.files.resume(saved["files"])
        if self.past is not None:
            self.past.bring_back(saved["files"].get("taken", 0))
            self.past.follow()
            self.files.past = self.past
            self._look(InPlace.begin)
        self.events.resume()
        self._output.resume(self._part.text)
        if tombstones:
            named = ", ".join(tombstones)
            self.note(
                f"the checkpoint could not hold {named}: the program fails if it uses that before it is made anew"
            )

    def passed(self, saved: Mapping[str, Any]) -> None:
        """Stop hiding the files that existed when the program was at this loop in an earlier attempt."""
        self._answers.end()
        self.files.passed(saved["files"])

    def more(self) -> dict[str, Any]:
        """Return what is saved with the program's state: that of its files, and the number of its split calls."""
        found: dict[str, Any] = {"files": self.files.state()}
        return found if self._split is None else {**found, "split": self._split.state_dict()}

    def note(self, text: str) -> None:
        """Show the user a warning."""
        self._rank.note(text, "warning")

    def _prepare(self) -> bool:
        """Take a snapshot for a checkpoint on rank 0; return True, on all ranks, if one was taken.

        Raises Leave on all ranks if they must exit and no checkpoint is possible.
        """
        ranks = self._rank.ranks
        found = (self._take(), self._rank.instructions.release) if ranks.rank == 0 else (None, False)
        taken, release = ranks.broadcast_object(found) if ranks.size > 1 else found
        if taken is None and release:
            raise Leave(RELEASED)
        return bool(taken)

    def _take(self) -> bool | None:
        """Take a snapshot for a checkpoint and return True.

        Return False if it must wait for an iteration of an outer loop. Return None if it is not possible now, for
        example as the state cannot be pickled, or as restarts from here would not be exact.
        """
        self._look(InPlace.checkpoint)
        self._part.stations, self._outermost = [], self._heads.outermost  # older ones are of another step
        if not self.saves or not self.rehearsal.allows(self._outermost):
            return None
        try:
            stations = self._heads.stations()
        except Exception as error:  # a snapshot must never end the training
            self.note(f"no checkpoint at step {self.step}: {error}")
            return None
        if stations is None:
            return False
        if copied := stations[-1].snapshot.copied:
            self.rehearsal.begin_anew(f"{copied[0]} is also held by functions of its library, which call the loop")
            return None
        self._part.stations, self._part.text = stations, self._output.text
        self._watchers.call(self.rehearsal.taken, self.step)
        return True


def _refuse_other_values(before: Mapping[str, Value], now: Mapping[str, Value]) -> None:
    """Raise InvalidDefinition if hyperparameters differ from the checkpoint's, whose values the program would use."""
    changed = [f"{name} {before[name]} -> {now[name]}" for name in now if before.get(name, now[name]) != now[name]]
    if changed:
        raise InvalidDefinition(
            f"a program goes on with the values that it has, so {', '.join(changed)} cannot be given when it is "
            "continued: leave it out, or begin anew with it"
        )
