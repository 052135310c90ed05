"""Name the checkpoint part that holds a program's modules, for the runner and for notebooks that load them."""

from __future__ import annotations

PART = "modules"  # by the names of variables, the state of each module and, where it can be made again, its skeleton
STATE, SKELETON = "state", "skeleton"
