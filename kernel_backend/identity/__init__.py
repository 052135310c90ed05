"""Authenticate callers: map a token to a user."""
