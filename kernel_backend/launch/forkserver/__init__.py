"""Import torch once, in a forkserver, and fork all ranks from that process: server, client and protocol."""
