"""Measure what an evaluation that follows a training costs the training: its time with one beside its time without.

Each step of the training waits 50 ms, as for a device; a checkpoint of 13 MB is saved every 50 steps, and measured on
the machine's other slot. Both trainings are timed from the first step to the last. As cores that others use hide what
is less than some percent, the work that the rank itself has more at each checkpoint is timed, too: it lists its
checkpoints with the mark of the evaluation, and with what was measured.

    python benchmarks/followed_cost.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from jupyter_ext.submit.predict import of_checkpoints, options_of, read_data, submit_use
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.client import Client
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.definition.prediction_form import EVALUATING
from kernel_backend.model.ids import Reference, Source
from kernel_backend.model.labels import UNLABELLED
from tests.contract.checkpoints_contract import manifest
from tests.support.world import World

STEPS, EVERY, ROUNDS = 600, 50, 3
SOURCE = """
import time
import torch
from torch import nn
TIMES = []
def rows(count): return torch.utils.data.TensorDataset(torch.ones(count, 1024), torch.zeros(count, dtype=torch.long))
def train_data(): return rows(800)
def test_data(): return rows(64)
def model(): return nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
def optimizer(params): return torch.optim.AdamW(params)
def loss(output, target, log="", wait=0.05):
    if not torch.is_grad_enabled():
        return nn.functional.cross_entropy(output, target)
    TIMES.append(time.time())
    time.sleep(wait)
    if len(TIMES) == STEPS:
        open(log, "w").write(str(TIMES[-1] - TIMES[0]))
    return nn.functional.cross_entropy(output, target)
"""


def trained(world: World, log: Path, followed: bool) -> tuple[float, int]:
    """Return the seconds of a training, and how many of its checkpoints were measured before its end."""
    made = world.submit(
        SOURCE.replace("STEPS", str(STEPS)),
        contract=CONTRACT,
        slots=1,
        steps=STEPS,
        checkpoint_every={"steps": EVERY},
        log=str(log),
        await_evaluation=followed,
    ).experiment.number
    client = Client.connect(start=False, home=world.home)
    if followed:
        rows = read_data(EVALUATING, "test_data")
        config = of_checkpoints(options_of(slots="1", threads="1"), follow=True)
        evaluation = submit_use(
            client, EVALUATING, Source(Reference(made)), rows.capture, {}, config, labels=UNLABELLED, role=rows.role
        )
    assert world.ended(made, patience=600).state == "completed"
    measured = len([each for each in client.reports(made) if each.kind == "validation"])
    if followed:
        assert world.ended(evaluation.experiment.number, patience=600).state == "completed"
    return float(log.read_text()), measured


def listed(folder: Path, followed: bool) -> float:
    """Return the median seconds of listing four checkpoints, as a rank does after each that it saves."""
    place = Directory(folder / str(followed))
    for step in range(4):
        place.commit(manifest(step, parts=(place.write(f"{step}-1", "model", [b"weights"]),)))
        if followed:
            place.judge(f"{step}-1", 7, {"loss": 0.5, "accuracy": 0.9})
    if followed:
        place.follow(7, True)
    seconds = []
    for _ in range(500):
        began = time.perf_counter()
        place.committed()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def main() -> None:
    """Print the ratio of each round, and the median."""
    with tempfile.TemporaryDirectory() as folder:
        alone, beside = (listed(Path(folder), followed) for followed in (False, True))
        print(f"four checkpoints listed in {1e3 * alone:.2f} ms alone, {1e3 * beside:.2f} ms followed")
        world = World(Path(folder, "home"))
        try:
            world.serve()
            ratios = []
            for _ in range(ROUNDS):
                alone, _ = trained(world, Path(folder, "alone"), followed=False)
                beside, measured = trained(world, Path(folder, "beside"), followed=True)
                ratios.append(beside / alone)
                print(
                    f"{STEPS} steps of 50 ms: {alone:.2f} s alone, {beside:.2f} s followed ({measured} of "
                    f"{STEPS // EVERY} checkpoints measured by its end), {ratios[-1]:.4f}"
                )
            print(f"median {statistics.median(ratios):.4f}")
        finally:
            world.close()


if __name__ == "__main__":
    main()
