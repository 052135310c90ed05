"""Propose the hyperparameters of new trials."""
