"""Provide the notebook part of Daylight. This file imports no module of the package, as every kernel imports it."""

from __future__ import annotations

from kernel_backend import __version__

__all__ = ["__version__"]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Return the module of the Jupyter server extension."""
    return [{"module": "jupyter_ext.server.extension"}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Return the folder of the prebuilt JupyterLab extension, and the name under which JupyterLab installs it."""
    return [{"src": "labextension", "dest": "daylight"}]
