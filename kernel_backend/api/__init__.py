"""Serve the HTTP API of the service, by handlers that parse a request, call a method of the service, and reply."""
