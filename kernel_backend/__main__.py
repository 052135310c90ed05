"""Run the service of this user's home directory: `python -m kernel_backend`."""

import sys

if "--hub" in sys.argv:  # a hub has passed a token to this process: hide it before anything that takes time
    from kernel_backend.parent_death import keep_to_itself

    keep_to_itself()

from kernel_backend.app import main

main()
