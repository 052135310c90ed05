"""Keep the scheduler's cluster state up to date from the store."""
