"""Store snapshots: archives named by their content, and the environment that code ran in."""
