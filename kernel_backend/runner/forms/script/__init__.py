"""Train programs with a training loop of their own, as they stand."""
