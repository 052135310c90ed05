"""Checkpoints of a trial: parts that are digested as they are written, and a manifest that is the commit."""
