"""Run Daylight's kernel service; docs/explanation/architecture.md describes its layers."""

__version__ = "0.1.0"

# Version of the numerics of a snapshot (seeds, order of samples, reduction, metrics). Raised only on purpose,
# together with the golden digests of tests/distributed: the same snapshot must give the same bits for ever.
NUMERICS = 4
