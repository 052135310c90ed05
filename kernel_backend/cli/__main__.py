"""`python -m kernel_backend.cli`: the `daylight` command where no script was installed."""

import sys

from kernel_backend.cli import main

sys.exit(main())
