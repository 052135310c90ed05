"""Measure the share of a core that the launcher of a node with 8 ranks needs to sample the use of slots.

Eight processes stand for the ranks, each with two children as its loader processes; further processes stand for the
others of a busy node, since each sample looks through all. A sample is timed by the CPU time of its thread, with the
delivery's JSON. GPUs, where there are any, are read too.

    python benchmarks/sampling_cost.py [--ranks 8] [--others 300]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from kernel_backend.devices import local_node
from kernel_backend.launch.utilisation.sampler import MOST_SHARE, PERIOD_S, UseReader, node_meters
from kernel_backend.model.reports import Delivery
from kernel_backend.model.resources import Share

GOAL = 0.5  # % of a core
SAMPLES = 40
RANK = "sleep 600 & sleep 600 & wait"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ranks", type=int, default=8)
    arguments.add_argument("--others", type=int, default=300)
    asked = arguments.parse_args()
    node = local_node()
    share = Share(node="here", kind=node.kind, address="", slots=tuple(range(asked.ranks)))
    with contextlib.ExitStack() as until:
        ranks = [started(until, "sh", "-c", RANK) for _ in range(asked.ranks)]
        for _ in range(asked.others):
            started(until, "sleep", "600")
        reader = UseReader("here", node_meters(share, range(asked.ranks), until))
        pids = dict(enumerate(each.pid for each in ranks))
        seconds = [sampled(reader, pids) for _ in range(SAMPLES)]
        count = len(psutil.pids())
    each = statistics.median(seconds)
    percent = 100 * min(each / PERIOD_S, MOST_SHARE)
    print(f"{asked.ranks} ranks, {count} processes on the node: {1000 * each:.1f} ms a sample")
    print(f"a sample every {max(PERIOD_S, each / MOST_SHARE):.1f} s: {percent:.3f} % of a core (goal <= {GOAL} %)")
    sys.exit(percent > GOAL)


def started(until: contextlib.ExitStack, *command: str) -> subprocess.Popen[bytes]:
    """Start a process; it and its children are ended when `until` is left."""
    process = subprocess.Popen(command, start_new_session=True)
    until.callback(process.wait)
    until.callback(end, process.pid)
    return process


def end(pid: int) -> None:
    """Kill a process and its children."""
    for each in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


def sampled(reader: UseReader, pids: dict[int, int]) -> float:
    """Return the CPU seconds of a sample and its delivery."""
    begun = time.thread_time()
    Delivery(use=tuple(reader.sample(pids))).model_dump_json()
    return time.thread_time() - begun


if __name__ == "__main__":
    main()
