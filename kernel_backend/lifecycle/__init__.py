"""Manage the life cycle of trials: reconciliation, attempt outcomes, resume checkpoints, backoff. Pure functions."""
