"""Start ranks fast: fork them from a process that has already imported torch, the forkserver.

The package has the server, its client in launchers, and the protocol between them.
"""
