"""Name the checkpoint part that holds a program's modules, for the runner and for notebooks that load them."""

from __future__ import annotations

PART = "modules"  # state of each module by variable name, with its pickled structure if it can be recreated
STATE, SKELETON = "state", "skeleton"
