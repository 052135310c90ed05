"""Run Daylight as a JupyterHub service: `daylight(c, home="/srv/daylight")` in its `jupyterhub_config.py`."""

from jupyter_ext.hub.configure import daylight, service
from jupyter_ext.hub.profiles import check_server, profiles

__all__ = ["check_server", "daylight", "profiles", "service"]
