"""Submit a cell or a file: check the capture, collect what travels with it, and send it."""
