"""Access an owner's files for the service: in its own process, or as that Unix user."""
