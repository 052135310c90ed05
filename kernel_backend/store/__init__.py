"""Store what the service keeps across restarts.

`base.py` defines the interface, `sql.py` implements it.
"""
