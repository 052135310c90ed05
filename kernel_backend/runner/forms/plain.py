"""Run a cell once as it is (`%%dlrun`), and store its variables as artifacts."""

from __future__ import annotations

import os
import pickle
import threading
from typing import Any

from torch import nn

from kernel_backend.artifacts.run import run
from kernel_backend.definition.plain import MARK, RESULT, VALUE
from kernel_backend.model.sizes import size
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.external_loop.leave import FINISHED, RELEASED, Leave
from kernel_backend.runner.external_loop.run_methods import RunMethods
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.external_loop.user_loop import LoopSettings
from kernel_backend.runner.forked_children import children_end_here
from kernel_backend.runner.process_end import ending_normally, flush_output

MOST_BYTES = 256 * 2**20  # limit for one value
_SHOWN = 2000  # characters of a value shown in the log
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
        with children_end_here(), ending_normally():
            exec(compile(loaded.cell, str(loaded.module.__file__), "exec", dont_inherit=True), held)
        values = {name: held[name] for name in held[MARK] if name in held}
        for name in held[MARK]:
            if name not in held:
                self._rank.note(f"--back {name}: the cell has no variable of this name", "warning")
        last = held.get(VALUE)
        if last is not None:
            print(f"result: {_shown(last)}", flush=True)
        kept = {name: self._pickled(name, value) for name, value in values.items()}
        file = run.folder / RESULT
        file.write_bytes(pickle.dumps({"value": self._pickled("the last value", last), "names": kept}))
        run.artifact(RESULT, file)

    def _pickled(self, name: str, value: Any) -> tuple[bytes | None, str]:
        """Return the pickle of a variable and its shortened `repr`; the pickle is None if it fails or is too large.

        `name` is the variable's name, for a warning to the user.
        """
        try:
            data = pickle.dumps(value)
        except Exception as error:  # any error of the user's class
            self._rank.note(
                f"{name} cannot be brought back ({type(error).__name__}: {error}); its text is kept", "warning"
            )
            return None, _shown(value)
        if len(data) > MOST_BYTES:
            most = size(MOST_BYTES)
            text = f"{name} has {size(len(data))}, and at most {most} are brought back: save it with run.artifact"
            self._rank.note(text, "warning")
            return None, _shown(value)
        return data, _shown(value)

    def _beside(self) -> None:
        """Write heartbeats while the cell runs, in a thread; end the process if the job's slots are reclaimed.

        If the cell has registered state for checkpoints, the process goes on until that state can be saved.
        """
        while not self._ended.wait(_LOOK_S):
            self._rank.progress.tick("step", self.step)
            if self._rank.instructions.release and not self._methods.registered:
                flush_output()
                os._exit(RELEASED)


def _shown(value: Any) -> str:
    try:
        return repr(value)[:_SHOWN]
    except Exception as error:  # raised by a user's class
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
