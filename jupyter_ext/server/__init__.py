"""Serve Daylight's pages in a Jupyter server, by REST and websocket handlers that forward to the user's service."""
