"""Submit a cell or a file: check the capture, collect the project files and values it needs, and send all of it."""
