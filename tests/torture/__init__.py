"""Damage checkpoints and disturb trainings, briefly in the test suite and at length in `make torture`."""
