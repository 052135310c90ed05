"""Submit a cell or a file: check what was captured, collect the project files and values it needs, and send all."""
