"""Store of what launchers measure: times of ranks by part, and the use of slots."""
