"""Store what launchers measure: the time that ranks spend in each part of their work, and the use of slots."""
