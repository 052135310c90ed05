"""Run the example notebooks with their full numbers of epochs; the test suite trains fewer.

python -m tests.torture.examples
"""

from __future__ import annotations

import os
import subprocess
import sys

FILES = ("tests/notebook/test_example_notebooks.py", "tests/notebook/test_gallery_notebooks.py")

if __name__ == "__main__":
    command = [sys.executable, "-m", "pytest", "-q", *FILES]
    sys.exit(subprocess.call(command, env={**os.environ, "FULL_NOTEBOOKS": "1"}))
