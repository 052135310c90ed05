"""Read a training definition without running it: user functions, hyperparameters and source."""
