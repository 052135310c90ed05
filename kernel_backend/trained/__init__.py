"""Load what an experiment has trained: its model with the weights of a checkpoint."""
