"""Records and rules of webhooks: addresses to which the service sends notices about experiments."""
