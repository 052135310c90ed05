"""Run Daylight's kernel service; docs/explanation/architecture.md describes its layers."""

__version__ = "0.1.0"

# Version of all code that determines the bits of a result (seeds, order of samples, reduction, metrics). Raise it
# only on purpose, together with the golden digests of tests/distributed: a snapshot must always give the same bits.
NUMERICS = 4
