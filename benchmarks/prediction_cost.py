"""Measure what predictions cost beside a plain loop over the same batches, each of which waits 10 ms, as for a device.

Both are timed from the first batch to the last; the job also stores shards and checkpoints in between.

    python benchmarks/prediction_cost.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from jupyter_ext.capture import Capture
from jupyter_ext.submit.predict import options_of, submit_use
from kernel_backend.client import Client
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.definition.prediction_form import PREDICTING
from kernel_backend.model.ids import Reference, Source
from kernel_backend.model.labels import UNLABELLED
from kernel_backend.model.snapshot import Piece
from tests.support.world import World

BATCHES, BATCH, ROUNDS = 2000, 256, 3
MODEL = """
from torch import nn
import torch
def model(): return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
def train_data(): return [(torch.ones(64), 1)] * 8
def loss(output, target): return nn.functional.cross_entropy(output, target)
"""
ROWS = """
import time
import torch
TIMES = []
def predict_data(batches=1): return torch.ones(batches * 256, 64)
def predict(model, batch):
    TIMES.append(time.time())
    found = model(batch)
    time.sleep(0.01)
    TIMES.append(time.time())
    if len(TIMES) == 2 * BATCHES:
        open(LOG, "w").write(str(TIMES[-1] - TIMES[0]))
    return found
"""


def plain() -> float:
    """Return the seconds of a plain loop."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).eval()
    rows, outputs = torch.ones(BATCHES * BATCH, 64), []
    began = time.perf_counter()
    with torch.no_grad():
        for first in range(0, len(rows), BATCH):
            outputs.append(model(rows[first : first + BATCH]))
            time.sleep(0.01)
    return time.perf_counter() - began


def predicted(world: World, model: int, folder: Path) -> float:
    """Return the seconds of the job."""
    log = folder / "seconds"
    source = ROWS.replace("BATCHES", str(BATCHES)).replace("LOG", repr(str(log))).lstrip()
    piece = Piece(cell=None, file="rows.py", line=1, count=source.count("\n"), cell_line=1)
    client = Client.connect(start=False, home=world.home)
    capture = Capture(source, (piece,), roles_from=1)
    made = submit_use(
        client,
        PREDICTING,
        Source(Reference(model)),
        capture,
        {"batches": BATCHES},
        options_of(slots="1", batch_size=str(BATCH), threads="1"),
        labels=UNLABELLED,
    )
    assert world.ended(made.experiment.number, patience=600).state == "completed"
    return float(log.read_text())


def main() -> None:
    """Print the ratio of each round, and the median."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder, "home"))
        try:
            world.serve()
            number = world.submit(MODEL, contract=CONTRACT, epochs=1, slots=1).experiment.number
            assert world.ended(number).state == "completed"
            ratios = []
            for _ in range(ROUNDS):
                ours, theirs = predicted(world, number, Path(folder)), plain()
                ratios.append(ours / theirs)
                print(f"{BATCHES} batches of 10 ms: Daylight {ours:.2f} s, plain loop {theirs:.2f} s, {ratios[-1]:.3f}")
            print(f"median {statistics.median(ratios):.3f}")
        finally:
            world.close()


if __name__ == "__main__":
    main()
