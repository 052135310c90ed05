"""What the service remembers. `base.py` says what a store promises; `sql.py` keeps it."""
