"""Provide views of experiments: overviews, curves and the message stream, without data that a user may not see."""
