"""Measure the step time of a LightningModule, a Keras model and a Trainer, in a job and by the framework alone.

The same cell is trained by its framework and by Daylight, on one thread, in processes of their own that take turns
(`contenders/round_robin.py`); a step lasts from the arrival of one batch to that of the next. The job has everything
that is on by default: derived seeds, reports, heartbeats, deterministic operations, and the allocator's settings that
a launcher gives its ranks. No checkpoint is taken.

    python benchmarks/framework_steps.py
    python benchmarks/framework_steps.py --only Keras --rounds 30
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
    asked = parser.parse_args()
    for name in asked.only or PAIRS:
        alone, in_a_job = PAIRS[name]
        contenders = {"alone": Contender(alone, env=ONE_THREAD), "in a job": Contender(in_a_job, env=OF_RANK)}
        times = contest(contenders, asked.rounds, asked.steps)
        medians = {who: 1e3 * statistics.median(each) for who, each in times.items()}
        least = min(times["in a job"]) / min(times["alone"])
        print(
            f"{name}: alone {medians['alone']:.2f} ms, in a job {medians['in a job']:.2f} ms, "
            f"ratio {ratio(times['in a job'], times['alone']):.3f} (of the best rounds {least:.3f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
