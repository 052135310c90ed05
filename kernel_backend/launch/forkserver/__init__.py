"""Import torch once in a forkserver and fork all ranks from it: server, client and protocol."""
