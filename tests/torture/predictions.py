"""Predict on 1, 2 and 4 slots and on a changing number of them, while processes are killed at random instants.

    python -m tests.torture.predictions --count 50
    python -m tests.torture.predictions --count 50 --slots 1..4 --seed 7

For each number of slots one prediction follows the other until that many kills are done. The joined files must be equal
in each byte to those of an undisturbed run, and each row must be there once and in order. A line for each prediction
and each number of slots says what was killed, and how many shards were computed again for each kill and slot.
"""

from __future__ import annotations

import argparse
import contextlib
import operator
import random
import tempfile
import time
from collections import Counter
from functools import partial, reduce
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
    """Joined file of predictions, and how many rows were computed again."""

    joined: bytes
    again: int


class Torment(NamedTuple):
    """Disturbances of a prediction: what was killed, changes of its number of slots, rows computed again."""

    kills: Counter[str]
    changes: int
    again: int

    def line(self, slots: str, predictions: int) -> str:
        """Return what happened to so many predictions on `slots` slots."""
        killed, victims = self.kills.total(), ", ".join(f"{count} {name}" for name, count in self.kills.most_common())
        return (
            f"{slots} slots, {killed} kills in {predictions} predictions ({victims}), {self.changes} changes of slots: "
            f"each row once, bit-equal; {self.again} rows again, "
            f"{self.again / max(1, killed) / SHARD / int(slots[-1]):.2f} shards a kill and slot"
        )


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


def outcome(world: World, number: int, folder: Path, rows: int) -> Outcome:
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
    return Outcome(joined, computed - rows)


def _buffers(column: object) -> list[object]:
    return list(column.combine_chunks().buffers())  # type: ignore[attr-defined]


def tormented(
    world: World, model: int, folder: Path, slots: str, wanted: bytes, rows: int, count: int, draw: random.Random
) -> Torment:
    """Predict while up to `count` processes are killed; if `slots` is a range, trainings take some in between.

    Raises AssertionError unless all rows are there once and in order, with the bits of the predictions `wanted`.
    """
    number = submitted(world, model, folder, slots, rows)
    kills, sizes = Counter[str](), dict[int, int]()
    while kills.total() < count and not _over(world, number):
        before = _attempt(world, number, sizes)
        until(lambda: _over(world, number) or world.ranks(), "ranks are there")
        time.sleep(draw.uniform(0.0, 1.5))
        if ".." in slots and draw.random() < 0.3:
            world.submit(epochs=1, slots=2)
        victim = draw.choice(_VICTIMS)
        if _over(world, number) or not kill(world, number, before, victim, draw):
            continue
        kills[victim] += 1
        if victim != "service":
            until(partial(_goes_on, world, number, before), "the next attempt")
    assert world.ended(number, patience=1200).state == "completed", world.overview(number)
    found = outcome(world, number, folder, rows)
    assert found.joined == wanted, f"{slots} slots: another result"
    _attempt(world, number, sizes)
    inorder = [size for _, size in sorted(sizes.items())]
    return Torment(kills, sum(map(operator.ne, inorder, inorder[1:])), found.again)


def proof(world: World, model: int, folder: Path, slots: str, wanted: bytes, rows: int, count: int, seed: int) -> str:
    """Torment one prediction after another until `count` kills are done; return a line with the result."""
    draw, done = random.Random(f"{seed}-{slots}"), list[Torment]()
    folder.mkdir()
    while (left := count - sum(each.kills.total() for each in done)) > 0:
        done.append(tormented(world, model, folder / str(len(done)), slots, wanted, rows, left, draw))
        print(f"  {done[-1].line(slots, 1)}", flush=True)
    kills, changes, again = zip(*done, strict=True)
    return Torment(reduce(operator.add, kills), sum(changes), sum(again)).line(slots, len(done))


def _attempt(world: World, number: int, sizes: dict[int, int]) -> int:
    """Return the number of the newest attempt, and add to `sizes` how many slots the attempts have had."""
    overview = world.overview(number)
    sizes.update({each.number: each.slots for each in overview.attempts})
    return overview.trials[0].attempt


def _goes_on(world: World, number: int, before: int) -> bool:
    return _over(world, number) or world.overview(number).trials[0].attempt > before


def _over(world: World, number: int) -> bool:
    return world.overview(number).experiment.state in EXPERIMENT_ENDED


def main() -> None:
    """Run the proof, and print a line for each number of slots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="kills for each number of slots")
    parser.add_argument("--slots", nargs="+", default=["1", "2", "4", "1..4"])
    parser.add_argument("--rows", type=int, default=40_000, help="of each prediction")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="predictions-") as temporary:
        folder, rows = Path(temporary), options.rows
        world = World(folder / "home", slots=4)
        try:
            world.serve()
            model = trained(world)
            quiet = submitted(world, model, folder / "quiet", "2", rows, pause=0.0)
            assert world.ended(quiet, patience=1200).state == "completed", world.overview(quiet)
            wanted = outcome(world, quiet, folder / "quiet", rows)
            assert wanted.again == 0, wanted.again
            lines = [
                proof(world, model, folder / slots, slots, wanted.joined, rows, options.count, options.seed)
                for slots in options.slots
            ]
            print(*lines, sep="\n", flush=True)
        finally:
            world.close()


if __name__ == "__main__":
    main()
