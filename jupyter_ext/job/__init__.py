"""Provide the job object of a notebook: an experiment's state, metrics and trained model."""
