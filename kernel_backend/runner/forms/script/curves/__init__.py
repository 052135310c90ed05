"""Derive curves from the values that a program prints, logs and computes, without calls of Daylight's API."""
