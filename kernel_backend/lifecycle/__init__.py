"""Manage a trial's life cycle with pure functions: reconciliation, attempt outcomes, resume checkpoints and backoff."""
