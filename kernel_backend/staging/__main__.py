"""Launch an attempt on a node without the service's home: `python -m kernel_backend.staging --step ENGINE`."""

from __future__ import annotations

import argparse
import logging
import os

from kernel_backend.launch.node import STEPS, node_index
from kernel_backend.staging.launch import launch_staged

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="kernel_backend.staging", description=__doc__)
    parser.add_argument("--step", choices=STEPS, required=True, help="the engine that has started this launcher")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per piece of a log is noise
    raise SystemExit(launch_staged(node_index(arguments.step, os.environ)))
