"""Authenticate requests to the service: find the user to whom a token belongs."""
