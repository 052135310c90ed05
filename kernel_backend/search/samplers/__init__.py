"""Samplers: how a new trial's hyperparameters are drawn."""
