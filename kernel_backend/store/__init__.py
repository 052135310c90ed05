"""Store what the service persists: `base.py` defines the interface, `sql.py` implements it."""
