"""An experiment's snapshot trained again and again gives the same bits each time.

python -m tests.torture.reruns --count 100
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from kernel_backend.client import Client
from tests.support.world import World
from tests.torture.model import OPTIONS, SOURCE


def run(count: int, world: World, slots: int = 2) -> str:
    """Train once, then rerun this often; return a sentence with the result.

    Raises AssertionError at the first differing bit.
    """
    client = Client.connect(start=False, home=world.home)
    first = world.submit(SOURCE, slots=slots, **{**OPTIONS, "pause": 0.0}).experiment.number
    assert world.ended(first).state == "completed"
    for _ in range(count):
        again = client.rerun(first).experiment.number
        assert world.ended(again).state == "completed"
        found = client.diff(first, again)
        assert found.results.identical, found.results.text
        assert found.differences == (), found.differences
    return (
        f"{count} of {count} reruns on {slots} slots are bit-identical: every report, and every part of the checkpoints"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = World(Path(folder) / "home")
        made.serve()
        try:
            print(run(asked.count, made))
        finally:
            made.close()
