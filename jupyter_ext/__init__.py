"""The notebook's side of Daylight. Kernels import this too, so it names its parts and loads none of them."""

from __future__ import annotations

from kernel_backend import __version__

__all__ = ["__version__"]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """What a Jupyter server loads."""
    return [{"module": "jupyter_ext.server.extension"}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """What JupyterLab loads, and the name it has there."""
    return [{"src": "labextension", "dest": "daylight"}]
