"""Daylight as a service of a JupyterHub: `daylight(c, home="/srv/daylight")` in its `jupyterhub_config.py`."""

from jupyter_ext.hub.configure import daylight, service
from jupyter_ext.hub.profiles import check_server, profiles

__all__ = ["check_server", "daylight", "profiles", "service"]
