"""Act for Unix users in the service: call their agents, and validate all answers."""
