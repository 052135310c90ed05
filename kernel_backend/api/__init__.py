"""HTTP API of the service: handlers that parse a request, call one service method and reply."""
