"""Serve Daylight's pages in a Jupyter server: REST and websocket handlers that forward to the user's service."""
