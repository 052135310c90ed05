"""Save a program as a checkpoint part: its state at each station, with tensors and arrays by digest."""

from __future__ import annotations

from typing import Any

from kernel_backend.definition.script.parts import BLOBS, STATIONS
from kernel_backend.runner.forms.script.blobs import Blobs, from_bytes, together
from kernel_backend.runner.forms.script.heads import Station
from kernel_backend.runner.forms.script.snapshots import Snapshot


class ProgramPart:
    """Checkpoint part with the state of a program."""

    def __init__(self) -> None:
        """Set up without stations, so that the program runs from its top without a restore."""
        self.stations: list[Station] = []
        self.first: dict[str, Any] = {}  # random states at the program's start
        self.text = ""  # the program's output

    def state_dict(self) -> dict[str, Any]:
        """Return the stations, and the contents that they refer to by digest."""
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
            BLOBS: together(each.snapshot for each in self.stations),
            "first": self.first,
            "text": from_bytes(self.text.encode("utf-8", "surrogateescape")),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the stations and the initial random states from a checkpoint."""
        blobs: Blobs = state[BLOBS]
        self.stations = [
            Station(each["loop"], each["finished"], Snapshot(each["graph"].numpy().tobytes(), blobs), each["returned"])
            for each in state[STATIONS]
        ]
        self.first = state["first"]
        self.text = state["text"].numpy().tobytes().decode("utf-8", "surrogateescape")
