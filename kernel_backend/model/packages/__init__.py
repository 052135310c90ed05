"""Find what other packages add to Daylight."""
