"""Compute validation metrics over the whole validation set, on any number of ranks."""
