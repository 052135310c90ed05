"""What travels beside the cell: local modules that it imports, and files that `--include` names."""

from __future__ import annotations

from jupyter_ext.project.collect import LIMIT, ProjectFiles, collect
from jupyter_ext.project.imported import Imported
from jupyter_ext.project.root import ProjectPlace, place_of

__all__ = ["LIMIT", "Imported", "ProjectFiles", "ProjectPlace", "collect", "place_of"]
