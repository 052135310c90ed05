"""Deliver notices about experiments to webhooks: over HTTP, and as mail."""
