"""Access an owner's files for the service, in its own process or as that owner's Unix user."""
