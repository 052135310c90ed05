"""Act for Unix users: the service calls agents, which run as these users, and validates all of their answers."""
