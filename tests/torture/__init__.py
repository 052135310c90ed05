"""Harm done to checkpoints and trainings, in a short version for every day and a long one for `make torture`."""
