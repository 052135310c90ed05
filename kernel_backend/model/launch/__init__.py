"""Records that a launcher and its ranks share: the launch specification, progress ticks and environment variables."""
