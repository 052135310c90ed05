"""The service over HTTP: thin handlers that parse, call one verb and reply."""
