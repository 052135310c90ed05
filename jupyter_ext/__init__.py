"""Provide the notebook part of Daylight.

Every kernel imports this file, so it imports no other module of the package.
"""

from __future__ import annotations

from kernel_backend import __version__

__all__ = ["__version__"]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Return the module of the Jupyter server extension, in the form that Jupyter expects."""
    return [{"module": "jupyter_ext.server.extension"}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Return the folder of the prebuilt JupyterLab extension, and the name under which it is installed."""
    return [{"src": "labextension", "dest": "daylight"}]
