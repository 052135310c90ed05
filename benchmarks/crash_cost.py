"""Simulate the GPU-hours that a crash costs a long job: with Daylight, from scratch, and with hourly checkpoints.

The parameters are measured by other benchmarks: how long training stalls for a checkpoint and when the checkpoint is on
the disk (`checkpoint_stall.py`), and how long a crash goes unnoticed and a resume takes (`resume_time.py`). Crashes
come at exponentially distributed times, also during a resume. The cost of a crash is all the time that the job loses:
work to be done again, detection, resuming, and the stalls for checkpoints before it. All three restart automatically
and at once; where a user restarts the job by hand, the time until then is lost as well.

    python benchmarks/crash_cost.py                      48 hours on 16 slots, a crash each 24, 12 and 6 hours
    python benchmarks/crash_cost.py --mtbf 3 --slots 512
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from typing import NamedTuple

HOUR = 3600.0


class Policy(NamedTuple):
    """Describe a way to survive crashes by its costs, in seconds."""

    name: str
    every: float  # of work between checkpoints; infinite: there are none
    stall: float  # training stands still for each
    write: float  # from its beginning until it counts
    detect: float  # until a crash is noticed
    resume: float  # from there to the first step


class Life(NamedTuple):
    """Record how long a job took, and what each of its crashes cost."""

    seconds: float
    crashes: list[float]  # seconds that each has cost


def live(policy: Policy, work: float, between: float, draw: random.Random) -> Life:
    """Simulate a job of `work` seconds of training, with a mean time of `between` seconds between crashes."""
    wall = safe = start = 0.0
    crashes: list[float] = []
    while True:
        until_crash = draw.expovariate(1 / between)
        needed = start + duration(policy, work - safe)
        if until_crash >= needed:
            return Life(wall + needed, crashes)
        saved = committed(policy, until_crash - start)
        crashes.append(until_crash + policy.detect - saved)
        wall += until_crash + policy.detect
        safe += saved
        start = policy.resume


def duration(policy: Policy, work: float) -> float:
    """Return the seconds that `work` seconds of training take, including the stalls for checkpoints."""
    return work + math.floor(work / policy.every) * policy.stall


def committed(policy: Policy, seconds: float) -> float:
    """Return the seconds of work that are saved in a checkpoint if a training dies after `seconds`."""
    if math.isinf(policy.every):
        return 0.0
    count = math.floor((seconds - policy.write) / (policy.every + policy.stall))
    return max(0, count) * policy.every


def percentile(values: list[float], share: float) -> float:
    """Return the value that the given share of all values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def compare(policies: list[Policy], args: argparse.Namespace, mtbf: float) -> None:
    """Print what a crash costs under each policy, and how long the whole job takes."""
    print(f"\na crash each {mtbf:g} hours on average, {args.runs} jobs of {args.hours:g} hours on {args.slots} slots")
    print(f"  {'':26}{'GPU-hours lost a crash':>26}{'crashes':>10}{'job takes':>12}{'GPU-hours lost a job':>28}")
    print(f"  {'':26}{'mean':>16}{'p95':>10}{'a job':>10}{'':>12}{'mean':>16}{'p95':>12}")
    for policy in policies:
        draw = random.Random(args.seed)
        lives = [live(policy, args.hours * HOUR, mtbf * HOUR, draw) for _ in range(args.runs)]
        each = [args.slots * cost / HOUR for life in lives for cost in life.crashes]
        whole = [args.slots * (life.seconds / HOUR - args.hours) for life in lives]
        print(
            f"  {policy.name:26}{statistics.mean(each):16,.2f}{percentile(each, 0.95):10,.2f}"
            f"{len(each) / len(lives):10,.1f}{statistics.mean(life.seconds for life in lives) / HOUR:10,.1f} h"
            f"{statistics.mean(whole):16,.2f}{percentile(whole, 0.95):12,.2f}",
            flush=True,
        )


def main() -> None:
    """Simulate each policy under each rate of crashes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=48.0, help="of work (default: %(default)s)")
    parser.add_argument("--slots", type=int, default=16, help="GPUs (default: %(default)s)")
    parser.add_argument("--mtbf", type=float, nargs="+", default=[24.0, 12.0, 6.0], help="hours between crashes")
    parser.add_argument("--runs", type=int, default=1000, help="jobs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=4, help="of the crashes (default: %(default)s)")
    ours = parser.add_argument_group("ours, in seconds")
    ours.add_argument("--every", type=float, default=60.0, help="between checkpoints (default: %(default)s)")
    ours.add_argument("--stall", type=float, default=0.01, help="of training, for one (default: %(default)s)")
    ours.add_argument("--write", type=float, default=2.0, help="until one is safe (default: %(default)s)")
    ours.add_argument("--detect", type=float, default=1.0, help="a crash (default: %(default)s)")
    ours.add_argument("--resume", type=float, default=6.0, help="to the first step (default: %(default)s)")
    theirs = parser.add_argument_group("the others, in seconds")
    theirs.add_argument("--their-stall", type=float, default=2.3, help="torch.save (default: %(default)s)")
    theirs.add_argument("--their-detect", type=float, default=1.0, help="a crash (default: %(default)s)")
    theirs.add_argument("--their-resume", type=float, default=6.0, help="to the first step (default: %(default)s)")
    args = parser.parse_args()
    recovery = args.their_detect, args.their_resume
    policies = [
        Policy("from scratch", math.inf, 0.0, 0.0, *recovery),
        Policy("torchrun, saved hourly", HOUR, args.their_stall, args.their_stall, *recovery),
        Policy("Daylight", args.every, args.stall, args.write, args.detect, args.resume),
    ]
    for policy in policies:
        print(
            f"{policy.name:24}", "  ".join(f"{name} {value:g} s" for name, value in list(policy._asdict().items())[1:])
        )
    for mtbf in args.mtbf:
        compare(policies, args, mtbf)


if __name__ == "__main__":
    main()
