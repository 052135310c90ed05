"""Start ranks fast by forking them from a process that has imported torch, the forkserver.

The package has the server, its client in launchers, and the protocol between them.
"""
