"""Submit a cell or a file: check the capture, collect the project files and values that travel with it, and send it."""
