"""Collect a project's files for a snapshot: imported local modules, and files named by `--include`."""

from __future__ import annotations

from jupyter_ext.project.collect import LIMIT, ProjectFiles, collect
from jupyter_ext.project.imported import Imported
from jupyter_ext.project.root import ProjectPlace, place_of

__all__ = ["LIMIT", "Imported", "ProjectFiles", "ProjectPlace", "collect", "place_of"]
