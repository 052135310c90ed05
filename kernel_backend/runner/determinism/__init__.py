"""Determinism: derived seeds, random states, numeric settings and digests."""
