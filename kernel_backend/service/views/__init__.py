"""Serve views of experiments: overviews, curves, the message stream, and redaction of what a caller may not see."""
