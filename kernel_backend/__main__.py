"""`python -m kernel_backend` runs the service of this home."""

from kernel_backend.app import main

main()
