"""Launch the ranks of the attempt in FOLDER: `python -m kernel_backend.launch FOLDER [--step ENGINE]`.

With `--step slurm` or `--step kubernetes`, that engine has started such a process on each node of the gang.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from kernel_backend.launch.launcher import launch
from kernel_backend.launch.node import STEPS, node_index

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="kernel_backend.launch", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of the attempt")
    parser.add_argument(
        "--step", choices=STEPS, help="run as one of the launchers that this engine has started on each node"
    )
    arguments = parser.parse_args()
    launch(arguments.folder, node_index(arguments.step, os.environ) if arguments.step else None)
