"""The scheduler's view of the cluster, kept up to date from the store."""
