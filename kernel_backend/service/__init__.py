"""Run the Daylight service: read what runs on the cluster, compute scheduling decisions, and apply them."""
