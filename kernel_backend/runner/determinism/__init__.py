"""Set up determinism: derived seeds, random states, numeric settings and digests."""
