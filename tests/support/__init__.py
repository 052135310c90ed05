"""Helpers of the tests: builders, a small real service, and ways to break things."""
