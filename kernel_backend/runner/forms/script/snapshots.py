"""Save the state of a program at the start of a loop's iteration, and restore it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, MappingProxyType, ModuleType
from typing import Any

import torch

from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.forms.script import frames
from kernel_backend.runner.forms.script.state.blobs import Blobs
from kernel_backend.runner.forms.script.state.graph import GraphWriter
from kernel_backend.runner.forms.script.state.paths import Live
from kernel_backend.runner.forms.script.state.reading import GraphReader
from kernel_backend.runner.forms.script.state.setup_data import SetupData, Versions, writes_past_versions
from kernel_backend.runner.forms.script.state.tombstones import NotSaved


@dataclass
class Snapshot:
    """State of a program at one time: its pickled objects, and the bytes of tensors and arrays by digest."""

    graph: bytes
    blobs: Blobs
    copied: Sequence[str] = ()  # objects that a restart would have twice: the program another one than a library


class Snapshots:
    """Maker of snapshots of one program's state, which also restores them in the restarted program."""

    def __init__(
        self, builtins: Mapping[str, Any], main: ModuleType, codes: Callable[[str], Sequence[CodeType]]
    ) -> None:
        """Set up for a program with the main module `main`; `codes` returns all code objects of a module.

        `builtins` is the dict that only the program's modules have.
        """
        self._builtins, self._main, self._codes = builtins, main, codes
        self._setup: SetupData | None = None
        self._versions: Versions | None = None
        self._modules: set[str] = set()  # whose code was searched for writes that torch does not count
        self._foreign: dict[int, Any] = {}  # modules of libraries

    def survey(self, frame: FrameType) -> bool:
        """On the first call, record the data that the program has created before its first loop, and return True.

        Later calls return False. Where an object raises while it is read, nothing is recorded, and checkpoints hold all
        data: this must never end the training.
        """
        if self._setup is not None:
            return False
        self._setup = SetupData()
        namespaces = self._namespaces()
        writer = GraphWriter(namespaces, None, self._versions_for(namespaces))
        with contextlib.suppress(Exception):
            writer.write(self._roots(namespaces, frame, ()), {})
            self._setup = writer.data
        return True

    def take(self, frame: FrameType, items: Sequence[Any], more: Mapping[str, Any]) -> Snapshot:
        """Return a snapshot of the program, whose innermost running function has the stack frame `frame`.

        `items` are the iterators of its running loops, `more` are values to be saved with it. Raises any error of
        pickling.
        """
        namespaces = self._namespaces()
        held = frames.held_by_libraries(frame, self._builtins)
        writer = GraphWriter(namespaces, self._setup, self._versions_for(namespaces), held=held)
        random_states = RandomStates().state_dict()
        graph = writer.write(self._roots(namespaces, frame, items), {"random": random_states, **more})
        return Snapshot(graph, writer.blobs, writer.copied)

    def restore(
        self,
        snapshot: Snapshot,
        frame: FrameType,
        items: Sequence[Any],
        changed: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
    ) -> tuple[dict[str, Any], list[str]]:
        """Restore a snapshot in the running program.

        Return the values that were saved with the snapshot, and the names of objects that it could not hold. `changed`
        has pairs of old and new values by variable name: a variable with the old value gets the new one. Raises
        NotSaved if the program runs other functions than before, or if its code before the first loop creates different
        objects.
        """
        namespaces = self._namespaces()
        roots = self._roots(namespaces, frame, items)
        reader = GraphReader(snapshot.graph, snapshot.blobs, Live(roots), namespaces, self._code)
        with torch.enable_grad():
            saved = reader.read()
        for key in saved["roots"]:
            if key[0] == "globals":
                reader.module(key[1])
        if set(saved["roots"]) != {*roots, *(("globals", name) for name in namespaces)}:
            raise NotSaved(f"the program is in {_told(roots)}, and was in {_told(saved['roots'])}")
        reader.apply()
        stack = frames.program_frames(frame, self._builtins)
        for key, values in saved["roots"].items():
            for name, (before, now) in changed.items():
                if values.get(name) == before and type(values[name]) is type(before):
                    values[name] = now
            if key[0] == "globals":
                frames.set_globals(namespaces[key[1]], values)
            elif key[0] == "locals":
                frames.set_locals(stack[key[1]], values)
        RandomStates().load_state_dict(saved["random"])
        return saved, reader.tombstones

    def _namespaces(self) -> dict[str, dict[str, Any]]:
        return frames.program_modules(self._builtins, self._main, self._foreign)

    def _versions_for(self, namespaces: Mapping[str, dict[str, Any]]) -> Versions | None:
        if namespaces.keys() != self._modules:  # a module was imported
            self._modules = set(namespaces)
            self._versions = Versions(counted=not any(writes_past_versions(self._codes(each)) for each in namespaces))
        return self._versions

    def _roots(
        self, namespaces: Mapping[str, dict[str, Any]], frame: FrameType, items: Sequence[Any]
    ) -> dict[Any, dict[str, Any]]:
        found: dict[Any, dict[str, Any]] = {}
        for name, namespace in namespaces.items():
            found["globals", name] = frames.names(namespace)
        for number, each in enumerate(frames.program_frames(frame, self._builtins)):
            found["locals", number, each.f_code.co_qualname] = dict(each.f_locals)
        found["items"] = {str(number): each for number, each in enumerate(items)}
        return found

    def _code(self, module: str, qualname: str, line: int) -> CodeType | None:
        found = (each for each in self._codes(module) if (each.co_qualname, each.co_firstlineno) == (qualname, line))
        return next(found, None)


def _told(roots: Mapping[Any, Any]) -> str:
    return ", ".join(str(key[2]) for key in roots if key[0] == "locals") or "no function"
