"""The contract of a training definition: its user functions, hyperparameters and source, read without running it."""
