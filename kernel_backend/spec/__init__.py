"""Parse the configuration of a submission: options, hyperparameter assignments and their rules."""
