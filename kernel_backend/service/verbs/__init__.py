"""What users can do, by subject: checkpoints, artifacts, comparison, search, quotas and the cluster."""
