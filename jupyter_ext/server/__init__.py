"""The Jupyter server extension: REST and websocket handlers that pass requests on to the user's service."""
