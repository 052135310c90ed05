"""Make the part of a checkpoint that holds a program: its stations, and what they refer to by digest."""

from __future__ import annotations

from typing import Any

from kernel_backend.runner.forms.script.blobs import Blobs, from_bytes, together
from kernel_backend.runner.forms.script.heads import Station
from kernel_backend.runner.forms.script.snapshots import Snapshot


class ProgramPart:
    """State of a program, as a part of checkpoints."""

    def __init__(self) -> None:
        """Begin without stations, from which a program runs anew."""
        self.stations: list[Station] = []
        self.first: dict[str, Any] = {}  # random states where the program began
        self.text = ""  # what it printed

    def state_dict(self) -> dict[str, Any]:
        """Return the stations, and the bytes of all by digest."""
        return {
            "stations": [
                {
                    "loop": each.key,
                    "finished": each.finished,
                    "returned": each.returned,
                    "graph": from_bytes(each.snapshot.graph),
                }
                for each in self.stations
            ],
            "blobs": together(each.snapshot for each in self.stations),
            "first": self.first,
            "text": from_bytes(self.text.encode("utf-8", "surrogateescape")),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the stations."""
        blobs: Blobs = state["blobs"]
        self.stations = [
            Station(each["loop"], each["finished"], Snapshot(each["graph"].numpy().tobytes(), blobs), each["returned"])
            for each in state["stations"]
        ]
        self.first = state["first"]
        self.text = state["text"].numpy().tobytes().decode("utf-8", "surrogateescape")
