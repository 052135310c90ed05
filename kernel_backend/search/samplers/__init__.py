"""Sample the hyperparameters of new trials."""
