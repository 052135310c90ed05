"""Measure the step time of a LightningModule, a Keras model and a Trainer, in a job and by the framework alone.

The same cell is trained by its framework and by Daylight, on one thread, in processes of their own that take turns
(`contenders/round_robin.py`); a step lasts from the arrival of one batch to that of the next. The job has everything
that is on by default: derived seeds, reports, heartbeats, deterministic operations, and the allocator's settings that
a launcher gives its ranks. No checkpoint is taken.

    python benchmarks/framework_steps.py
    python benchmarks/framework_steps.py --only Keras --rounds 30
    python benchmarks/framework_steps.py --only Keras --keras tensorflow --slots 2

With `--slots`, the Keras job on so many slots is compared with the one on one slot, at 32 samples a slot.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from contenders import frameworks
from contenders.round_robin import Contender, contest, ratio

from kernel_backend.model.launch.allocator import allocator_env

PAIRS = {
    "Lightning": (frameworks.lightning_alone, frameworks.lightning_in_a_job),
    "Keras": (frameworks.keras_alone, frameworks.keras_in_a_job),
    "Trainer": (frameworks.trainer_alone, frameworks.trainer_in_a_job),
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
OF_RANK = ONE_THREAD | allocator_env(os.environ)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PAIRS, action="append")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60, help="steps a round")
    parser.add_argument("--keras", choices=["torch", "tensorflow"], default="torch", help="the backend of Keras")
    parser.add_argument("--slots", type=int, default=1, help="of the Keras job, compared with one slot")
    asked = parser.parse_args()
    if asked.slots > 1:
        name, job, ranks = f"Keras on {asked.keras}", frameworks.keras_in_a_job, asked.slots
        one = Contender(job, (asked.keras,), env=OF_RANK)
        several = Contender(job, (asked.keras, 32 * ranks), ranks, OF_RANK)
        compare(name, {"one slot": one, f"{ranks} slots": several}, asked.rounds, asked.steps)
        return
    for name in asked.only or PAIRS:
        alone, in_a_job = PAIRS[name]
        of_keras = (asked.keras,) if name == "Keras" else ()
        contenders = {
            "alone": Contender(alone, of_keras, env=ONE_THREAD),
            "in a job": Contender(in_a_job, of_keras, env=OF_RANK),
        }
        compare(name, contenders, asked.rounds, asked.steps)


def compare(name: str, contenders: dict[str, Contender], rounds: int, steps: int) -> None:
    """Print the step times of two contenders, and the ratio of the second to the first."""
    times = contest(contenders, rounds, steps)
    first, second = contenders
    medians = {who: 1e3 * statistics.median(each) for who, each in times.items()}
    print(
        f"{name}: {first} {medians[first]:.2f} ms, {second} {medians[second]:.2f} ms, "
        f"ratio {ratio(times[second], times[first]):.3f} "
        f"(of the best rounds {min(times[second]) / min(times[first]):.3f})",
        flush=True,
    )


if __name__ == "__main__":
    main()
