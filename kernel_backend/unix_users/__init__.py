"""Act for Unix users on the service's side: call agents, and validate everything that they answer."""
