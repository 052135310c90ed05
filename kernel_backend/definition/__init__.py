"""Parse a training definition without running it: the user's functions, their hyperparameters and source."""
