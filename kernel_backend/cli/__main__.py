"""Run the `daylight` command as `python -m kernel_backend.cli`, where its script is not installed."""

import sys

from kernel_backend.cli import main

sys.exit(main())
