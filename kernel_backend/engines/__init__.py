"""Run gangs. `base.py` defines the interface of an engine; each other file is one engine."""
