"""Predict on 1, 2 and 4 slots and on a changing number of them, while processes are killed at random instants.

    python -m tests.torture.predictions --count 50

The joined files must be equal in each byte to those of an undisturbed run, and each row must be there once and in
order. A line says how many shards were computed again for each kill and slot.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jupyter_ext.capture import Capture
from jupyter_ext.submit.predict import options_of, submit_use
from kernel_backend.client import Client
from kernel_backend.commands.predictions.write import write_predictions
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.definition.prediction_form import PREDICTING
from kernel_backend.model.ids import Reference, Source
from kernel_backend.model.labels import UNLABELLED
from kernel_backend.model.snapshot import Piece
from kernel_backend.model.states import EXPERIMENT_ENDED
from tests.support.world import World, until
from tests.torture.victims import kill

BATCH, SHARD = 8, 32  # rows
_VICTIMS = ("rank", "launcher", "service", "rank 0 in a save")
MODEL = """
import torch
from torch import nn
def model(width=8):
    return nn.Sequential(nn.Linear(4, width), nn.Dropout(0.5), nn.BatchNorm1d(width), nn.Linear(width, 3))
def train_data(): return [(torch.randn(4, generator=torch.Generator().manual_seed(i)), i % 3) for i in range(64)]
def loss(output, target): return nn.functional.cross_entropy(output, target)
"""
# Each row says its number, which is written to a file as soon as the row is computed.
ROWS = """
import os
import time
import torch
def predict_data(rows=4096, pause=0.01):
    x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(3))
    return torch.utils.data.TensorDataset(x, torch.arange(rows), torch.full((rows,), pause))
def predict(model, batch):
    x, rows, pause = batch
    time.sleep(float(pause[0]))
    found = model(x)
    log = os.open("computed.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, "".join(f"{row}\\n" for row in rows.tolist()).encode())
    os.close(log)
    return {"scores": found, "label": [f"c{each}" for each in found.argmax(1).tolist()], "draw": torch.rand(len(x))}
"""


class Outcome(NamedTuple):
    """Joined file of predictions, the number of kills, and how many rows were computed again."""

    joined: bytes
    kills: int
    again: int


def trained(world: World) -> int:
    """Train the model that predicts."""
    made = world.submit(MODEL, contract=CONTRACT, epochs=1, slots=1)
    assert world.ended(made.experiment.number).state == "completed"
    return made.experiment.number


def submitted(world: World, model: int, folder: Path, slots: str, rows: int, pause: float = 0.01) -> int:
    """Submit the prediction, whose ranks write what they compute to a file in `folder`."""
    source = ROWS.lstrip()
    piece = Piece(cell=None, file="rows.py", line=1, count=source.count("\n"), cell_line=1)
    client = Client.connect(start=False, home=world.home)
    given = {"rows": rows, "pause": pause, "shard_rows": SHARD}
    config = options_of(slots=slots, batch_size=str(BATCH), threads="1", max_restarts="20")
    folder.mkdir(exist_ok=True)
    with contextlib.chdir(folder):
        capture = Capture(source, (piece,), roles_from=1)
        made = submit_use(client, PREDICTING, Source(Reference(model)), capture, given, config, labels=UNLABELLED)
    return made.experiment.number


def outcome(world: World, number: int, folder: Path, rows: int, kills: int = 0) -> Outcome:
    """Return the joined predictions; raise AssertionError unless all rows are there once, and in order."""
    import pyarrow.parquet as parquet

    client = Client.connect(start=False, home=world.home)
    (path,) = write_predictions(client, number, folder / f"{number}.parquet")
    table = parquet.read_table(path)
    assert table.column("row").to_pylist() == list(range(rows))
    plain = table.replace_schema_metadata(None)
    joined = b"".join(
        buffer.to_pybytes()
        for name in plain.column_names
        for buffer in _buffers(plain.column(name))
        if buffer is not None
    )
    computed = len((folder / "computed.log").read_text().splitlines())
    return Outcome(joined, kills, computed - rows)


def _buffers(column: object) -> list[object]:
    return list(column.combine_chunks().buffers())  # type: ignore[attr-defined]


def tormented(
    world: World,
    model: int,
    folder: Path,
    slots: str,
    rows: int,
    count: int,
    seed: int,
    others: bool = False,
    pause: float = 0.01,
) -> Outcome:
    """Predict while up to `count` processes are killed; with `others`, trainings take slots in between."""
    draw = random.Random(seed)
    number = submitted(world, model, folder, slots, rows, pause)
    kills = 0
    while kills < count and not _over(world, number):
        before = world.overview(number).trials[0].attempt
        until(lambda: _over(world, number) or world.ranks(), "ranks are there")
        time.sleep(draw.uniform(0.0, 1.5))
        if others and draw.random() < 0.3:
            world.submit(epochs=1, slots=2)
        victim = draw.choice(_VICTIMS)
        if _over(world, number) or not kill(world, number, before, victim, draw):
            continue
        kills += 1
        if victim != "service":
            until(partial(_goes_on, world, number, before), "the next attempt")
    assert world.ended(number, patience=1200).state == "completed", world.overview(number)
    return outcome(world, number, folder, rows, kills)


def _goes_on(world: World, number: int, before: int) -> bool:
    return _over(world, number) or world.overview(number).trials[0].attempt > before


def _over(world: World, number: int) -> bool:
    return world.overview(number).experiment.state in EXPERIMENT_ENDED


def main() -> None:
    """Run the proof, and print a line for each number of slots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="kills for each number of slots")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="predictions-") as folder:
        world = World(Path(folder, "home"), slots=4)
        try:
            world.serve()
            model = trained(world)
            quiet = submitted(world, model, Path(folder, "quiet"), "2", options.rows, pause=0.0)
            assert world.ended(quiet, patience=1200).state == "completed", world.overview(quiet)
            wanted = outcome(world, quiet, Path(folder, "quiet"), options.rows)
            assert wanted.again == 0, wanted.again
            for slots in ("1", "2", "4", "1..4"):
                most = int(slots[-1])
                found = tormented(
                    world, model, Path(folder, f"on-{most}-{len(slots)}"), slots, options.rows, options.count,
                    options.seed, others=len(slots) > 1,
                )  # fmt: skip
                assert found.joined == wanted.joined, f"{slots} slots: another result"
                print(
                    f"{slots} slots, {found.kills} kills: each row once, bit-equal; {found.again} rows again, "
                    f"{found.again / max(1, found.kills) / SHARD / most:.2f} shards a kill and slot",
                    flush=True,
                )
        finally:
            world.close()


if __name__ == "__main__":
    main()
