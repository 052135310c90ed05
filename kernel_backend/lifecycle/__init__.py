"""The life of a trial: reconciliation, outcomes of attempts, resume checkpoints and backoff, as pure functions."""
