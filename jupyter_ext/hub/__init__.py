"""Daylight as a service of a JupyterHub: `daylight(c, home="/srv/daylight")` in its `jupyterhub_config.py`."""

from jupyter_ext.hub.configure import daylight, service

__all__ = ["daylight", "service"]
