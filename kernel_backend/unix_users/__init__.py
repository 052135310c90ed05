"""Act for Unix users in the service: call the agents that run as these users, and validate all answers."""
