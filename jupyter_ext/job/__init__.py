"""Provide the job object: a handle of an experiment in a notebook, for its state, metrics and trained model."""
