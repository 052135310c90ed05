"""Define records that a launcher and its ranks share: launch specification, progress ticks, environment variables."""
