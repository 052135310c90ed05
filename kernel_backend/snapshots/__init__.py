"""Store snapshots: archives named by their sha256, and the Python environment in which code ran."""
