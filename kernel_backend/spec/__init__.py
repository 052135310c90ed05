"""Parse the configuration of a submission: its options, hyperparameter assignments, and their rules."""
