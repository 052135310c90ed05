"""`python -m kernel_backend` runs the service of this home."""

import sys

if "--hub" in sys.argv:  # a hub has handed it a token: before anything takes time
    from kernel_backend.parent_death import keep_to_itself

    keep_to_itself()

from kernel_backend.app import main

main()
