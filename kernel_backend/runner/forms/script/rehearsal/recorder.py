"""Record the digests of a program's variables at chosen steps, in the training and in its rehearsed restart."""

from __future__ import annotations

from types import FrameType

from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.runner.forms.script.events import Events
from kernel_backend.runner.forms.script.program import Program
from kernel_backend.runner.forms.script.rehearsal.digests import program_digests


class Recorder:
    """Listener that records digests of all variables of a program after each step in the set `wanted`.

    It never raises into the training: `failure` says why it records no more.
    """

    def __init__(self, events: Events, program: Program) -> None:
        self._program = program
        self._frame: FrameType | None = None
        self.wanted: set[int] = set()
        self.steps: dict[int, dict[str, str]] = {}
        self.failure = ""
        events.on_iteration.append(self._iteration)
        events.on_step.insert(0, self._step)

    def of(self, steps: range) -> dict[int, dict[str, str]] | None:
        """Return the digests recorded after `steps`, by step and variable; None if those of a step are missing yet."""
        found = {step: self.steps[step] for step in steps if step in self.steps}
        return found if len(found) == len(steps) else None

    def _iteration(self, loop: TrainingLoop, frame: FrameType) -> None:
        self._frame = frame

    def _step(self, step: int) -> None:
        frame, self._frame = self._frame, None
        if step in self.wanted and frame is not None and not self.failure:
            program = self._program
            try:
                self.steps[step] = program_digests(program.builtins, program.module, frame, program.by_clock)
            except Exception as error:
                self.failure = f"its variables cannot be compared, {type(error).__name__}: {error}"
