"""Measure how much time a rank spends in each part of its training: a clock, and the calls that it times."""
