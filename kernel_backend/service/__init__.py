"""Run the Daylight service: read the actual state, compute scheduling decisions, and apply them."""
