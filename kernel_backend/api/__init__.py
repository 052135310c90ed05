"""HTTP API of the service: handlers that parse a request, call a method of the service, and reply."""
