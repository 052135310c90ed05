"""Serve Daylight's pages in a Jupyter server: REST and websocket handlers that proxy to the user's service."""
