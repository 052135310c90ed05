"""Decide about the life cycle of trials: what to do next, how attempts ended, where to resume, how long to back off."""
