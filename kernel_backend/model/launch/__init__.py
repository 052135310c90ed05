"""Define records that a launcher and its ranks share: launch specification, progress, environment variables."""
