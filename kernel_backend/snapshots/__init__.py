"""Store snapshots (archives of code, named by their sha256), and describe the Python environment of the code."""
