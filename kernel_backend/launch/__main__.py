"""Launch the ranks of the attempt in FOLDER: `python -m kernel_backend.launch FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_backend.launch.launcher import launch

if __name__ == "__main__":
    launch(Path(sys.argv[1]))
