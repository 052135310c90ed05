"""Daylight's kernel service: words, decisions, seams, service and edges (docs/explanation/architecture.md)."""

__version__ = "0.1.0"

# What a snapshot's numbers mean (seeds, order of samples, reduction, metrics). Raised only on purpose,
# together with the golden digests of tests/distributed: the same snapshot must give the same bits for ever.
NUMERICS = 4
