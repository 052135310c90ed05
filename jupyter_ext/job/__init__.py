"""Provide the job object: an experiment's state, metrics and trained model in a notebook."""
