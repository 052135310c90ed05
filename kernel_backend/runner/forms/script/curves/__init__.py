"""Derive curves from values that a program prints, logs and computes, without calls of Daylight in the program."""
