"""Where gangs run. `base.py` says what an engine promises; each other file is one engine."""
