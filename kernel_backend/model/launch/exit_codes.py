"""Define the exit codes of a rank that ends as it should: any other one is a failure."""

from __future__ import annotations

FINISHED = 0  # the training is complete
RELEASED = 85  # it committed a checkpoint and gave up its slot
