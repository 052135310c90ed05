"""Run a program like the script form does, but without a job: in a forked process, from its start or a checkpoint."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch

from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.model.syntax import module_tree
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.forms.script.events import Events
from kernel_backend.runner.forms.script.files import ProgramFiles
from kernel_backend.runner.forms.script.heads import Heads
from kernel_backend.runner.forms.script.iterators import track_libraries
from kernel_backend.runner.forms.script.named_modules import NamedModules
from kernel_backend.runner.forms.script.output import Output
from kernel_backend.runner.forms.script.program import Program
from kernel_backend.runner.forms.script.saved import ProgramPart
from kernel_backend.runner.forms.script.snapshots import Snapshots
from kernel_backend.runner.forms.script.start import Start
from kernel_backend.runner.past.answers import Answers
from kernel_backend.runner.past.in_place import InPlace
from kernel_backend.runner.past.overlays import Overlays
from kernel_backend.runner.past.record import Past
from kernel_backend.runner.past.undo import looks_for, put_back


class Result:
    """Result of a run: output, global values as text and bytes, files, the error, and limits of the guarantee."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.printed: str = found["printed"]
        self.values: dict[str, Any] = found["values"]
        self.files: dict[str, bytes] = found["files"]
        self.error: str = found["error"]
        self.heads: int = found["heads"]
        self.notes: list[str] = found["notes"]
        self.limits: list[str] = found["limits"]
        self.checkpoints: dict[int, Any] = found["checkpoints"]


class _Listener:
    heads_of: Heads
    events: Events
    output: Output
    files: ProgramFiles
    modules: NamedModules
    part: ProgramPart
    answers: Answers
    past: Past | None = None
    in_place: InPlace | None = None

    def __init__(self, save_at: Sequence[int], dies_at: int, die: Callable[[_Listener], None]) -> None:
        self.save_at, self.heads = set(save_at), 0
        self._dies_at, self._die = dies_at, die
        self.notes: list[str] = []
        self.limits: list[str] = []
        self.checkpoints: dict[int, Any] = {}

    def look(self, find: Callable[[InPlace], list[str]]) -> None:
        self.limits += find(self.in_place) if self.in_place is not None else []

    def begun(self) -> None:
        self.answers.end()
        if self.past is not None:
            self.past.in_setup = False
            self.look(InPlace.begin)

    def ended(self, stations: list[Any]) -> None:
        pass

    def iterated(self, loop: TrainingLoop, frame: FrameType, outermost: bool) -> None:
        self.heads += 1
        self.look(InPlace.written)
        self._save()
        if self.heads == self._dies_at:
            self._die(self)

    def _save(self) -> None:
        if self.heads in self.save_at or not self.save_at:
            self.look(InPlace.checkpoint)
            try:
                stations = self.heads_of.stations()
            except Exception as error:
                self.notes.append(f"{type(error).__name__}: {error}")
                return
            if stations is not None and self.save_at:
                self.part.stations, self.part.text = stations, self.output.text
                self.checkpoints[self.heads] = pickle.dumps(
                    (self.heads, self.modules.state_dict(), self.part.state_dict())
                )

    def resumed(self, saved: Mapping[str, Any], tombstones: list[str]) -> None:
        self.answers.end()
        self.files.resume(saved["files"])
        if self.past is not None:
            self.past.bring_back(saved["files"].get("taken", 0))
            self.past.follow()
            self.files.past = self.past
            self.look(InPlace.begin)
        self.events.resume()
        self.output.resume(self.part.text)
        self.notes += tombstones

    def passed(self, saved: Mapping[str, Any]) -> None:
        self.answers.end()
        self.files.passed(saved["files"])

    def more(self) -> dict[str, Any]:
        return {"files": self.files.state()}

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(
    path: Path,
    save_at: Sequence[int] = (),
    checkpoint: bytes | None = None,
    rewritten: bool = True,
    always: bool = True,
    past: Path | None = None,
    dies_at: int = 0,
    scratch: Path | None = None,
) -> Result:
    """Run a program in a forked process, in its folder; with `rewritten` as the script form does, else unchanged.

    With `always`, a restart is possible in each iteration of outer loops, however short they are. With a folder `past`,
    a restart is shown the program's files as they were at its start; with a folder `scratch`, too, it is a rehearsal,
    which changes nothing. After the iteration `dies_at` the process ends as if it were killed: nothing is flushed or
    closed.
    """
    here, there = os.pipe()
    if not (child := os.fork()):
        os.close(here)
        with os.fdopen(there, "wb") as file:

            def die(listener: _Listener) -> None:
                pickle.dump(_left(path, listener), file)
                file.flush()
                os._exit(0)

            try:
                listener = _Listener(save_at, dies_at, die)
                pickle.dump(_run(path, listener, checkpoint, rewritten, always, past, scratch), file)
            except BaseException:
                traceback.print_exc()
        os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    return Result(pickle.loads(data))


def _run(
    path: Path,
    listener: _Listener,
    checkpoint: bytes | None,
    rewritten: bool,
    always: bool,
    past: Path | None,
    scratch: Path | None,
) -> dict[str, Any]:
    os.chdir(path.parent)
    overlays = None
    if past is not None:
        listener.past = Past(past, str(path.parent), (str(_beside(path)),))
        if checkpoint is not None:
            overlays = Overlays(listener.past, past.with_name(f"{past.name}.replay"))
            overlays.begin(scratch)
    sys.path.insert(0, str(path.parent))
    torch.set_num_threads(1)
    log = _beside(path) / f"log-{os.getpid()}"
    log.parent.mkdir(exist_ok=True)
    error = ""
    with log.open("w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        try:
            held = _form(path, listener, checkpoint, always, overlays) if rewritten else _plain(path)
        except BaseException:
            error, held = traceback.format_exc(), {}
    printed = log.read_text()
    log.unlink()
    return _left(path, listener, printed, held, error)


def _beside(path: Path) -> Path:
    """Return the folder with the log of a run, and the record of a program's files."""
    return path.parent.with_suffix(".run")


def _left(
    path: Path, listener: _Listener, printed: str = "", held: Mapping[str, Any] | None = None, error: str = ""
) -> dict[str, Any]:
    found = [each for each in path.parent.rglob("*") if each.is_file() and each.parent.name != "__pycache__"]
    return {
        "printed": printed,
        "values": {name: _described(value) for name, value in (held or {}).items() if not name.startswith("__")},
        "files": {str(each.relative_to(path.parent)): each.read_bytes() for each in found},
        "error": error,
        "heads": listener.heads,
        "notes": listener.notes,
        "limits": listener.limits,
        "checkpoints": listener.checkpoints,
    }


def _plain(path: Path) -> dict[str, Any]:
    sys.modules["__main__"] = module = ModuleType("__main__")  # by which functions are pickled for other processes
    held = vars(module)
    held["__file__"] = str(path)
    _seed()
    with contextlib.suppress(SystemExit):
        exec(compile(path.read_text(), str(path), "exec"), held)
    return held


def _form(
    path: Path, listener: _Listener, checkpoint: bytes | None, always: bool, overlays: Overlays | None
) -> dict[str, Any]:
    program = Program(module_tree(path.read_text()), Start(path, [str(path)], [path.parent]))
    listener.heads_of = heads = Heads(listener, lambda: program.sites, program.deepest, always)
    heads.snapshots = Snapshots(program.builtins, program.module, program.codes)
    listener.modules = NamedModules(vars(program.module), heads.frames)
    listener.part = ProgramPart(listener.modules)
    listener.events = events = Events()
    listener.output = Output(events.output)
    listener.answers = Answers(program.builtins)
    own = () if listener.past is None else (str(listener.past.folder),)
    listener.files = ProgramFiles(str(path.parent), _beside(path) / "files.json", own, overlays=overlays)
    if listener.past is not None:
        listener.in_place = InPlace(listener.past, listener.files.followed)
    untrack = track_libraries()
    _seed()
    if checkpoint is not None:
        listener.heads, modules, state = pickle.loads(checkpoint)
        listener.modules.load_state_dict(modules)
        listener.part.load_state_dict(state)
        RandomStates().load_state_dict(state["first"])
        heads.replay(listener.part.stations)
        listener.answers.replay(listener.part.answers)
        listener.files.replay()
        listener.output.muted = events.muted = True
    elif listener.past is not None:
        if listener.past.recorded and not looks_for(listener.past):
            listener.notes += put_back(listener.past)
        listener.past.begin()
        listener.files.past = listener.past
    listener.part.first, listener.part.answers = RandomStates().state_dict(), listener.answers.given
    try:
        with listener.files.throughout(program.builtins), listener.answers.throughout():
            program.run(heads.hooks())
    finally:
        listener.output.close()
        events.close()
        untrack()
    return vars(program.module)


def _seed() -> None:
    import random

    import numpy as np

    torch.manual_seed(67280421310721)
    random.seed(0)
    np.random.seed(0)


def _described(value: Any, depth: int = 0) -> Any:
    """Return a value in a form that can be compared between processes."""
    import numpy as np
    from torch import nn

    if isinstance(value, nn.Module):
        return {name: _described(each) for name, each in value.state_dict().items()}
    if isinstance(value, torch.optim.Optimizer):
        return _described(value.state_dict(), depth + 1)
    if isinstance(value, torch.Tensor):
        return (
            str(value.dtype),
            tuple(value.shape),
            value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes(),
        )
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, dict) and depth < 6:
        return {str(key): _described(each, depth + 1) for key, each in value.items() if not str(key).startswith("__")}
    if isinstance(value, list | tuple) and depth < 6:
        return [_described(each, depth + 1) for each in value]
    if isinstance(value, int | float | str | bool | type(None)):
        return value
    if hasattr(value, "__dict__") and not callable(value) and type(value).__module__ == "__main__" and depth < 4:
        return _described(vars(value), depth + 1)
    return type(value).__name__
