"""Compute validation metrics over the whole set, at any number of ranks."""
