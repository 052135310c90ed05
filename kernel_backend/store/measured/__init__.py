"""Store the measurements of launchers: times of ranks by part of the work, and the use of slots."""
