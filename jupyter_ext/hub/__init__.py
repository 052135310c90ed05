"""Configure Daylight as a JupyterHub service: call `daylight(c, home="/srv/daylight")` in `jupyterhub_config.py`."""

from jupyter_ext.hub.configure import daylight, service
from jupyter_ext.hub.profiles import check_server, profiles

__all__ = ["check_server", "daylight", "profiles", "service"]
