"""Save a program's state in a checkpoint: one state for each loop at which a restart restores it.

Equal tensors are stored once; those of the program's modules are in the checkpoint part NamedModules instead.
"""

from __future__ import annotations

import json
from typing import Any

from kernel_backend.definition.script.parts import BLOBS, SHARED, STATIONS
from kernel_backend.runner.forms.script.heads import Station
from kernel_backend.runner.forms.script.named_modules import NamedModules
from kernel_backend.runner.forms.script.snapshots import Snapshot
from kernel_backend.runner.forms.script.state.blobs import Blobs, from_bytes, together
from kernel_backend.runner.past.answers import Given


class ProgramPart:
    """Checkpoint part for the state of a program: one state for each loop at which a restart restores it."""

    def __init__(self, modules: NamedModules) -> None:
        """Set up the part without a saved state, so that the program starts from its beginning.

        `modules` is the checkpoint part of the program's modules, which is saved and restored before this one.
        """
        self._modules = modules
        self.stations: list[Station] = []
        self.first: dict[str, Any] = {}  # random states at the program's start
        self.answers: Given = {}  # what its setup was answered at the program's start, such as the time
        self.text = ""  # the program's output

    def state_dict(self) -> dict[str, Any]:
        """Return the program's state at each loop at which a restart restores it, with bytes of tensors by digest."""
        blobs = together(each.snapshot for each in self.stations)
        shared = self._modules.shared(blobs)
        return {
            STATIONS: [
                {
                    "loop": each.key,
                    "finished": each.finished,
                    "returned": each.returned,
                    "graph": from_bytes(each.snapshot.graph),
                }
                for each in self.stations
            ],
            BLOBS: {name: blob for name, blob in blobs.items() if name not in shared},
            SHARED: shared,
            "first": self.first,
            "answers": from_bytes(json.dumps(self.answers).encode()),
            "text": from_bytes(self.text.encode("utf-8", "surrogateescape")),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take from a checkpoint the states at loops, the random states and answers at the start, and the output."""
        blobs: Blobs = state[BLOBS] | self._modules.contents_of(state.get(SHARED, {}))
        self.stations = [
            Station(each["loop"], each["finished"], Snapshot(each["graph"].numpy().tobytes(), blobs), each["returned"])
            for each in state[STATIONS]
        ]
        self.first = state["first"]
        self.answers = json.loads(state["answers"].numpy().tobytes()) if "answers" in state else {}
        self.text = state["text"].numpy().tobytes().decode("utf-8", "surrogateescape")
