"""Implement users' operations by subject: artifacts, checkpoints, cluster, comparison, quotas and search."""
