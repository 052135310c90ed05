"""Run gangs: `base.py` defines the interface of an engine, each other engine has a file of its own."""
