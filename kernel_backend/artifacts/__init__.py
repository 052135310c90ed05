"""Store artifacts, which are files that a training saves for users, and provide `run`, which users' code calls."""
