"""Implement users' operations by subject: checkpoints, artifacts, comparison, search, quotas and the cluster."""
