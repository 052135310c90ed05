"""Provide the magics `%%dlsubmit`, `%%dlrun` and `%dl`."""
